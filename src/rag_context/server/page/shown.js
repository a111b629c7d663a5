// What agents were shown without asking: when, which client in which session, why, for how many tokens; and what was
// withheld. It is read again every few seconds while it is looked at.

import { memory } from "./api.js";
import { bar, counted, empty, h, link, put, say, tag, when } from "./dom.js";
import { agentOf, sessionName } from "./sessions.js";

const MOMENTS = { "session-start": "at the start of the session", prompt: "with a prompt", action: "before an action" };
const EVERY_MS = 3000;
const LIMIT = 200;

export async function shown(context, heading) {
  const { session, withheld } = context.fields;
  const box = h("input", { type: "checkbox", id: "withheld", checked: Boolean(withheld) });
  box.addEventListener("change", () => { location.hash = link("shown", { session, withheld: box.checked ? 1 : "" }); });
  const list = h("div", { class: "stack" });
  const count = h("span", { class: "dim" });
  let seen = "";
  const read = async () => {
    const answer = await memory("injections", { sessionId: session, shownOnly: withheld ? undefined : true, limit: LIMIT }, context);
    const key = JSON.stringify(answer);
    if (key === seen || (seen && list.contains(document.activeElement))) return;
    seen = key;
    const { injections, tokens } = answer;
    put(count, `${counted(injections.filter(each => each.shown).length, "passage")}, ${counted(tokens, "token")}`);
    put(list, injections.length ? bySession(injections).map(([id, those]) => sessionOf(id, those, context.fields)) : h("div", { class: "box" }, empty("Agents were shown nothing", h("span", {}, "Their hooks bring what was decided into a session: ", h("code", {}, "rag-context install --all"), "."))));
  };
  await read();
  say(count.textContent);
  const timer = setInterval(() => { if (!document.hidden) read().catch(() => {}); }, EVERY_MS);
  context.signal.addEventListener("abort", () => clearInterval(timer));
  return [
    bar(heading, count, h("div", { class: "end bar" },
      session && h("a", { class: "button", href: link("shown", { withheld }) }, "All sessions"),
      h("label", { class: "choice" }, box, " Also what was withheld"))),
    list,
  ];
}

function bySession(injections) {
  const found = new Map();
  for (const each of injections) found.set(each.sessionId, [...(found.get(each.sessionId) ?? []), each]);
  return [...found];
}

function sessionOf(sessionId, injections, { withheld }) {
  const [latest] = injections;
  const tokens = injections.reduce((sum, each) => sum + each.tokens, 0);
  return h("section", { class: "box", "aria-label": `Session ${sessionId}` },
    bar(h("h2", {}, h("a", { class: "plain", href: link("shown", { session: sessionId, withheld }), title: sessionId }, sessionName({ sessionId }))), agentOf(latest.client), h("span", { class: "meta end" }, counted(tokens, "token"), when(latest.at))),
    h("ul", { class: "rows cards" }, injections.map(item)));
}

function item(each) {
  return h("li", { class: each.shown ? "" : "withheld" },
    h("div", { class: "grow" }, passage(each),
      each.content && h("p", { class: "excerpt" }, each.content.length > 260 ? `${each.content.slice(0, 260)} …` : each.content),
      h("span", { class: "meta" }, MOMENTS[each.event] ?? each.event, each.subject && h("code", {}, each.subject), each.shown ? counted(each.tokens, "token") : tag(each.reason ?? "withheld", "warn"), scores(each.scores))),
    h("span", { class: "meta num" }, when(each.at)));
}

function passage({ documentId, title }) {
  if (!documentId) return h("span", { class: "dim" }, "Nothing was found");
  if (title === undefined || title === null) return h("span", { class: "dim" }, "Deleted since");
  return h("a", { class: "plain", href: link("documents", {}, documentId) }, title);
}

function scores(values) {
  const known = ["relevance", "coverage", "strength"].filter(name => values[name] !== undefined);
  return known.length > 0 && h("span", {}, known.map(name => `${name} ${values[name].toFixed(2)}`).join(", "));
}
