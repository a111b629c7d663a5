// What the memory did: what it was asked and could not answer, what was stored, and what agents were shown.

import { ifAllowed, memory, tool } from "./api.js";
import { command } from "./dialogs.js";
import { bar, counted, h, link, percent, put, tag, when, whole } from "./dom.js";
import { add } from "./documents.js";
import { kindName } from "./facets.js";
import { icon, kindIcon } from "./icons.js";
import { agentOf, projectsOf, sessionName, titled } from "./sessions.js";

const RANGES = [["24h", "24 hours", 1], ["7d", "7 days", 7], ["30d", "30 days", 30]];
const ROWS = 8;
// Searches of this page itself.
export const HERE = "page";

export async function home(context, heading) {
  put(heading, "What the memory did");
  let range = RANGES.some(([name]) => name === context.fields.range) ? context.fields.range : "7d";
  const body = h("div", { class: "stack" });
  const head = bar(heading);
  let seen = "";
  const draw = async () => {
    const state = await read(range, context.signal);
    const key = JSON.stringify(state);
    if (key === seen || (seen && body.contains(document.activeElement))) return;
    seen = key;
    if (!state.stats) put(heading, "What this key may see");
    const isEmpty = state.stats && state.facets.total === 0 && !state.stats.totalQueries && !state.stats.totalDocuments;
    put(head, heading, !isEmpty && h("div", { class: "end segments", role: "group", "aria-label": "Time range" }, RANGES.map(([name, text]) => h("button", { "aria-pressed": String(name === range), onclick: () => { location.hash = link("home", { range: name }); } }, text))), !isEmpty && h("button", { class: "main", onclick: () => add(context) }, icon("plus"), "Add"));
    put(body, isEmpty ? welcome(context) : state.stats ? happened(state) : part(state));
  };
  await draw();
  let last = "";
  context.onState = state => {
    const now = JSON.stringify([state.stats?.totalQueries, state.health?.indexedDocuments, state.latest]);
    if (last && now !== last) draw().catch(() => {});
    last = now;
  };
  return [head, body];
}

async function read(range, signal) {
  const [, , days] = RANGES.find(([name]) => name === range);
  const since = new Date(Math.floor(Date.now() / 3600000) * 3600000 - days * 86400000).toISOString();
  const options = { signal };
  const [stats, facets, injections] = await Promise.all([
    ifAllowed(memory("stats", { timeRange: range, include: "recent" }, options)),
    titled({ since }, options),
    ifAllowed(memory("injections", { shownOnly: true, limit: 500 }, options)),
  ]);
  if (!stats) {
    const [{ projects }, { collections }] = await Promise.all([tool("list_projects", {}, options), tool("collection_list", {}, options)]);
    return { facets, projects, collections };
  }
  const { totalQueries, totalDocuments, recent } = stats;
  return { stats: { totalQueries, totalDocuments, recent }, facets, injections: injections.injections.filter(each => each.at >= since) };
}

function part({ facets, projects, collections }) {
  const named = (name, view, names) => figure(h("a", { href: link(view) }, name), whole(names.length), names.slice(0, ROWS).join(", "));
  return [
    h("dl", { class: "figures" }, documentsFigure(facets), named("Projects", "projects", projects.map(each => each.project_name)), named("Collections", "collections", collections.map(each => each.name))),
    sessionsBox(facets),
  ];
}

function happened({ stats, facets, injections }) {
  const questions = stats.recent.filter(each => each.query && each.agent !== HERE);
  const open = questions.filter(each => !each.answered);
  const tokens = injections.reduce((sum, each) => sum + each.tokens, 0);
  const sessions = new Set(injections.map(each => each.sessionId)).size;
  return [
    h("dl", { class: "figures" },
      figure("Questions", whole(stats.totalQueries), stats.totalQueries ? "by agents and people" : "none yet"),
      figure("Without an answer", whole(open.length), questions.length ? `${percent(open.length / questions.length, 0)} of the latest ${whole(questions.length)}` : "nothing was asked"),
      documentsFigure(facets),
      figure("Shown unasked", whole(injections.length), injections.length ? `${counted(tokens, "token")} in ${counted(sessions, "session")}` : "no hook has shown anything")),
    h("div", { class: "two" },
      h("section", { class: "box" }, questionsBox(questions, open)),
      h("div", { class: "stack" },
        sessionsBox(facets),
        h("section", { class: "box" }, bar(h("h2", {}, "Shown to agents"), h("a", { class: "end", href: link("shown") }, "All receipts")),
          injections.length ? h("ul", { class: "rows" }, injections.slice(0, ROWS - 3).map(shownRow)) : h("p", { class: "dim pad" }, "Hooks bring what was decided into an agent's session. ", h("code", {}, "rag-context install --all"), " sets them up.")))),
  ];
}

const figure = (name, value, detail) => h("div", {}, h("dt", {}, name), h("dd", {}, value, h("small", {}, detail)));
const documentsFigure = facets => figure("Documents", whole(facets.total), `said or written, in ${counted(facets.sessionCount, "session")}`);

function sessionsBox({ sessions }) {
  return h("section", { class: "box" }, bar(h("h2", {}, "Latest sessions"), h("a", { class: "end", href: link("sessions") }, "All sessions")),
    sessions.length ? h("ul", { class: "rows" }, sessions.slice(0, ROWS - 2).map(sessionRow)) : h("p", { class: "dim pad" }, "Nothing was said or written in this time. ", h("a", { href: link("documents") }, "All documents")));
}

function questionsBox(questions, open) {
  const list = h("ul", { class: "rows" });
  const group = h("div", { class: "segments end", role: "group", "aria-label": "Which questions" });
  const choose = isOpen => {
    const rows = distinct(isOpen ? open : questions).slice(0, ROWS * 2);
    put(group, [[false, "All"], [true, `No answer (${open.length})`]].map(([value, text]) => h("button", { "aria-pressed": String(value === isOpen), onclick: () => { choose(value); group.querySelector("[aria-pressed=true]").focus(); } }, text)));
    put(list, rows.length ? rows.map(questionRow) : h("li", { class: "dim" }, isOpen ? "Every question had an answer." : "No question yet. Ask one with / or let an agent ask."));
  };
  choose(false);
  return [bar(h("h2", {}, "Questions"), group), list];
}

// The same question again is counted and not repeated.
function distinct(questions) {
  const found = new Map();
  for (const each of questions) {
    const known = found.get(each.query);
    if (known) known.times += 1;
    else found.set(each.query, { ...each, times: 1 });
  }
  return [...found.values()];
}

function questionRow(each) {
  return h("li", {}, h("a", { class: "plain grow", href: link("search", { query: each.query }) }, each.query),
    h("span", { class: "meta" }, !each.answered && tag("no answer", "warn"), each.times > 1 && `${each.times} times`, agentOf(each.agent), when(each.at)));
}

export function sessionRow(each) {
  return h("li", {}, h("a", { class: "plain grow", href: link("sessions", {}, each.sessionId) }, sessionName(each)),
    h("span", { class: "meta" }, projectsOf(each.tags), each.agents.map(agentOf), h("span", { title: each.contentTypes.map(kindName).join(", ") }, each.contentTypes.map(kindIcon), ` ${whole(each.count)}`), when(each.last)));
}

function shownRow(each) {
  return h("li", {}, each.documentId && each.title ? h("a", { class: "plain grow", href: link("documents", {}, each.documentId) }, each.title) : h("span", { class: "grow dim" }, "deleted since"),
    h("span", { class: "meta" }, agentOf(each.client), `${each.tokens} tokens`, when(each.at)));
}

// An empty index: from nothing to a connected agent, and to what was said before, by two commands.
function welcome(context) {
  const step = (number, title, text, ...more) => h("li", {}, h("span", { class: "step", "aria-hidden": "true" }, number), h("div", {}, h("h2", {}, title), h("p", { class: "dim" }, text), more));
  return h("section", { class: "box welcome" },
    h("p", { class: "lead" }, "Nothing is stored yet. Two commands in a terminal, and your agents remember."),
    h("ol", {},
      step("1", "Connect your agents", "Finds the agents on this machine and sets up tools, hooks and instructions. It shows what it changes, and uninstall takes it back.", command("rag-context install --all")),
      step("2", "Take in past sessions", "Reads the conversations that these agents keep on this machine. Nothing leaves it; secrets are masked.", command("rag-context import-history")),
      step("3", "Or begin by hand", "A decision, a note, a folder of documentation.", bar(h("button", { onclick: () => add(context) }, icon("plus"), "Write something down")), command("rag-context index docs"))));
}
