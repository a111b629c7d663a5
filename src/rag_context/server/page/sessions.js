// Sessions by day, and one of them read as a chat, with the passages that were found in it or shown to agents marked.

import { ifAllowed, memory } from "./api.js";
import { confirmed, toast } from "./dialogs.js";
import { colour, languageOf } from "./code.js";
import { bar, counted, dated, empty, h, link, put, say, tag, visible, when, whole } from "./dom.js";
import { PROJECT, facets, filterOf, kindName, oneOf, projectName, tenantOf } from "./facets.js";
import { kindIcon } from "./icons.js";
import { markdown, wordsOf } from "./markdown.js";

const PAGE = 20;
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "long", day: "numeric", month: "long" });
const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

// A conversation's title begins with who spoke first.
export const titleOf = ({ title, source, contentType }) => (title && contentType === "chat" ? title.replace(/^\[[^\]]{1,63}\] /, "") : title || source);

// A session's name: the title of a conversation in it where known, else its id; clients' are long.
export function sessionName({ sessionId, title }) {
  return title || sessionId.replace(/\b([0-9a-f]{8})-[0-9a-f-]{20,}\b/i, "$1");
}

// The counts of a filter, and its latest sessions with the titles of their conversations.
export async function titled(where, options) {
  const [{ facets: counts }, { documents }] = await Promise.all([
    memory("list", { ...where, limit: 1, facets: true }, options),
    memory("list", { ...where, contentType: "chat", limit: 100 }, options),
  ]);
  const titles = new Map(documents.filter(each => each.title !== each.source).map(each => [each.sessionId, titleOf(each)]));
  return { ...counts, sessions: counts.sessions.map(each => ({ ...each, title: titles.get(each.sessionId) })) };
}

export const agentOf = name => name && name !== "unknown" && h("span", { class: "agent" }, name === "page" ? "you" : name);
export const projectsOf = tags => tags.filter(each => each.startsWith(PROJECT)).map(each => tag(projectName(each), "accent"));

export async function sessions(context, heading) {
  return context.rest.length ? one(context, heading) : all(context, heading);
}

async function all(context, heading) {
  const { fields } = context;
  const counts = await titled(filterOf(fields), context);
  const listed = counts.sessions;
  const days = Object.groupBy ? Object.groupBy(listed, each => each.last.slice(0, 10)) : { "": listed };
  const hidden = counts.sessionCount - counts.sessions.length;
  say(counted(listed.length, "session"));
  return [
    bar(heading, h("span", { class: "dim" }, counted(counts.sessionCount, "session"))),
    h("div", { class: "with-facets" }, facets("sessions", fields, { ...counts, sessions: [] }, sessionName),
      h("div", { class: "stack" }, listed.length ? [
        Object.entries(days).map(([day, those]) => h("section", { class: "day" }, h("h2", {}, day && DAY.format(new Date(`${day}T12:00:00Z`))), h("ol", { class: "line" }, those.map(row)))),
        hidden > 0 && h("p", { class: "dim small" }, `The latest ${whole(counts.sessions.length)} of ${counted(counts.sessionCount, "session")}; filters show others.`),
      ] : h("div", { class: "box" }, empty(counts.sessionCount ? "No session matches" : "No session yet", counts.sessionCount ? h("a", { href: link("sessions") }, "Show all sessions") : h("span", {}, "Take in those of the agents on this machine with ", h("code", {}, "rag-context import-history"), "."))))),
  ];
}

function row(each) {
  return h("li", {}, h("time", { class: "dim num", datetime: each.last }, TIME.format(new Date(each.last))),
    h("div", { class: "grow" }, h("a", { class: "plain", href: link("sessions", {}, each.sessionId) }, sessionName(each)),
      h("span", { class: "meta" }, each.agents.map(agentOf), projectsOf(each.tags), each.title && h("span", { title: each.sessionId }, sessionName({ sessionId: each.sessionId })), each.contentTypes.map(kind => h("span", {}, kindIcon(kind), ` ${kindName(kind)}`)), counted(each.count, "document"))));
}

async function one(context, heading) {
  const [sessionId] = context.rest;
  const named = tenantOf(context.fields);
  const [first, shown] = await Promise.all([
    memory("list", { sessionId, ...named, limit: PAGE, facets: true }, context),
    ifAllowed(memory("injections", { shownOnly: true, limit: 500 }, context)),
  ]);
  const { facets: counts } = first;
  const info = counts.sessions[0] ?? { agents: [], tags: [], count: 0 };
  const chat = first.documents.find(each => each.contentType === "chat");
  const name = sessionName({ sessionId, title: chat && titleOf(chat) });
  put(heading, name);
  document.title = `${visible(name)} · rag-context`;
  const thread = h("div", { class: "thread" });
  const words = wordsOf(context.fields.query);
  let cursor = first.nextCursor;
  const draw = async page => Promise.all(page.documents.map(each => memory("get", { documentId: each.documentId, ...named }, context)));
  const sorted = found => [...found].sort((a, b) => a.occurredAt.localeCompare(b.occurredAt) || a.timestamp.localeCompare(b.timestamp));
  const nodes = found => sorted(found).map(each => entry(each, { words, target: context.fields, injections: shown?.injections ?? [], named }));
  const earlier = h("button", { onclick: async () => {
    earlier.disabled = true;
    const page = await memory("list", { sessionId, ...named, limit: PAGE, cursor }, context);
    cursor = page.nextCursor;
    earlier.after(...nodes(await draw(page)));
    earlier.disabled = false;
    earlier.hidden = !cursor;
  } }, "Earlier messages");
  earlier.hidden = !cursor;
  put(thread, earlier, nodes(await draw(first)));
  return [
    h("p", { class: "crumb" }, h("a", { href: link("sessions") }, "Sessions")),
    bar(heading, h("div", { class: "end bar" },
      shown && h("a", { class: "button", href: link("shown", { session: sessionId }) }, "What it was shown"),
      h("a", { class: "button", href: link("documents", { ...named, sessionId }) }, "As documents"),
      h("button", { class: "danger", disabled: !info.count, onclick: () => forgetSession(sessionId, named) }, "Forget"))),
    h("p", { class: "meta" }, info.agents.map(agentOf), projectsOf(info.tags), counted(info.count, "document"), info.last && h("span", {}, "last ", when(info.last)), sessionId !== name && `Session ${sessionId}`),
    first.documents.length ? thread : h("div", { class: "box" }, empty("Nothing is stored of this session", h("a", { href: link("sessions") }, "All sessions"))),
  ];
}

async function forgetSession(sessionId, named) {
  const outcome = await confirmed({
    preview: () => memory("forget", { sessionId, ...named, dryRun: true }),
    question: ({ documents }) => ({ title: `Forget this session?`, body: [h("p", {}, `${counted(documents, "document")} go to the trash for 30 days: nobody finds them any more, and taking the session in again stores nothing. It can be undone.`)], action: "Forget it" }),
    work: () => memory("forget", { sessionId, ...named }),
    done: ({ documents }) => `${counted(documents, "document")} forgotten`,
  }).catch(error => { toast(error.message); return null; });
  if (!outcome) return;
  location.hash = link("sessions");
  toast("The session is forgotten.", outcome.id && "Undo", () => memory("undo", { id: outcome.id, ...named }));
}

const MESSAGE = /^(?:(\d{1,4}[-:./T][^\n[]{1,28}?) ?)?\[([^\]\n]{1,63})\][ ]?/gm;
const OWN = new Set(["user", "human", "me", "you"]);

// The messages of a conversation as it is stored: `[Name] text`, with a time before it after pauses.
function messages(content) {
  const heads = [...content.matchAll(MESSAGE)];
  if (!heads.length) return null;
  const found = heads.map((head, at) => ({ at: head[1], name: head[2], start: head.index, end: heads[at + 1]?.index ?? content.length, text: content.slice(head.index + head[0].length, heads[at + 1]?.index).trim() }));
  const before = content.slice(0, heads[0].index).trim();
  return before && !before.startsWith("#") ? [{ name: "", start: 0, end: heads[0].index, text: before }, ...found] : found;
}

function entry(found, { words, target, injections, named }) {
  const own = injections.filter(each => each.documentId === found.documentId && each.content);
  const marks = own.map(each => ({ ...placeOf(found.content, each.content), text: ["Shown to ", agentOf(each.client), " ", when(each.at)] })).filter(each => each.start >= 0);
  if (target.at === found.documentId) marks.push({ ...linesOf(found.content, target.lines), text: ["Found by your search"], isTarget: true });
  const times = found.retrievalStats.queryCount;
  const foot = h("p", { class: "meta" }, h("a", { href: link("documents", named, found.documentId) }, found.contentType === "chat" ? "Document" : titleOf(found)), times > 0 && `found by ${counted(times, "search", "searches")}`, found.pinned && tag("pinned", "accent"), when(found.occurredAt));
  const said = found.contentType === "chat" && bubbles(found, words, marks);
  if (!said) {
    const isMarked = marks.length > 0;
    return h("article", { class: `note-card ${isMarked ? "found" : ""}`, "data-target": marks.some(each => each.isTarget), "aria-label": titleOf(found) },
      h("p", { class: "who" }, kindIcon(found.contentType), h("span", {}, ` ${oneOf(found.contentType)} `), agentOf(found.metadata.agent)),
      found.contentType === "code" ? h("pre", { class: "code" }, colour(found.content, languageOf(found.source))) : markdown(found.content, words),
      isMarked && h("p", { class: "why" }, marks[0].text), foot);
  }
  const { continues, repeated } = found.metadata;
  const before = continues && h("p", { class: "meta" }, `The ${counted(repeated, "message")} before are in `, h("a", { href: link("sessions", named, continues) }, `session ${sessionName({ sessionId: continues })}`));
  return h("section", { class: "talk", "aria-label": dated(found.occurredAt) }, before, said, foot);
}

// A conversation as it is read, null where it is none.
export const bubbles = (found, words, marks = []) => messages(found.content)?.map(each => bubble(each, found, marks, words));

function bubble(message, found, marks, words) {
  const mark = marks.find(each => each.start < message.end && each.end > message.start);
  const isOwn = OWN.has(message.name.toLowerCase());
  return h("article", { class: `bubble ${isOwn ? "own" : ""} ${mark ? "found" : ""}`, "data-target": mark?.isTarget },
    h("p", { class: "who" }, isOwn ? "You" : (message.name === "assistant" && found.metadata.agent) || message.name || "Session", message.at && h("span", { class: "dim" }, ` ${message.at}`)),
    markdown(message.text, words, true), mark && h("p", { class: "why" }, mark.text));
}

function placeOf(content, passage) {
  const start = content.indexOf(passage.trim().slice(0, 200));
  return { start, end: start + passage.length };
}

// Where the lines `3-9` stand in a text.
function linesOf(content, lines = "") {
  const [first, last] = lines.split("-").map(Number);
  if (!first) return { start: 0, end: content.length };
  const all = content.split("\n");
  const start = all.slice(0, first - 1).reduce((sum, line) => sum + line.length + 1, 0);
  return { start, end: all.slice(0, last || first).reduce((sum, line) => sum + line.length + 1, 0) };
}
