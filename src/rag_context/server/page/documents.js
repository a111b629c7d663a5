// Documents: a list with filters that is read page by page, and one document to read, correct, tag, pin and forget.

import { ApiError, errorNote, ifAllowed, memory } from "./api.js";
import { colour, languageOf } from "./code.js";
import { confirmed, formDialog, toast } from "./dialogs.js";
import { bar, counted, dated, empty, facts, h, link, note, put, say, tag, visible, when, whole } from "./dom.js";
import { ORIGINS, PROJECT, facets, filterOf, isNarrowed, kindName, oneOf, tenantOf } from "./facets.js";
import { icon, kindIcon } from "./icons.js";
import { markdown, wordsOf } from "./markdown.js";
import { promotion } from "./promotion.js";
import { agentOf, bubbles, projectsOf, sessionName, titleOf } from "./sessions.js";

const PAGE = 30;

export async function documents(context, heading) {
  return context.rest.length ? document_(context, heading) : list(context, heading);
}

async function list(context, heading) {
  const { fields } = context;
  const first = await memory("list", { ...filterOf(fields), limit: PAGE, facets: true }, context);
  const rows = h("ul", { class: "rows cards" });
  const more = h("button", {}, "Older documents");
  const count = h("span", { class: "dim" });
  let cursor;
  const take = page => {
    rows.append(...page.documents.map(each => documentRow(each, tenantOf(fields))));
    cursor = page.nextCursor;
    more.hidden = !cursor;
    put(count, `${whole(rows.children.length)} of ${counted(first.facets.total, "document")}, newest first`);
  };
  more.addEventListener("click", async () => {
    more.disabled = true;
    const before = rows.children.length;
    take(await memory("list", { ...filterOf(fields), limit: PAGE, cursor }, context));
    more.disabled = false;
    rows.children[before]?.querySelector("a").focus();
    say(counted(rows.children.length, "document"));
  });
  take(first);
  return [
    bar(heading, fields.project && tag(`of ${fields.project}`, "accent"), count, h("button", { class: "main end", onclick: () => add(context) }, icon("plus"), "Add")),
    h("div", { class: "with-facets" }, facets("documents", fields, first.facets, sessionName),
      h("div", { class: "box" }, first.warning && note("warn", h("p", {}, first.warning)), rows.children.length ? [rows, h("div", { class: "bar gap" }, more)] : none(fields))),
  ];
}

export function documentRow(each, named) {
  const tags = (each.metadata.tags ?? []).filter(name => !name.startsWith(PROJECT));
  return h("li", {}, h("span", { class: "kind", title: kindName(each.contentType) }, kindIcon(each.contentType), h("span", { class: "unseen" }, kindName(each.contentType))),
    h("div", { class: "grow" }, h("a", { class: "plain", href: link("documents", named, each.documentId) }, titleOf(each)),
      h("span", { class: "meta" }, h("span", { class: "cut", title: visible(each.source) }, each.source), Date.parse(each.timestamp) - Date.parse(each.occurredAt) > 86400000 && h("span", {}, "written ", when(each.occurredAt)), agentOf(each.metadata.agent), projectsOf(each.metadata.tags ?? []), tags.slice(0, 4).map(name => tag(`#${name}`)), each.status === "pending" && tag("waiting for vectors", "warn"))),
    h("span", { class: "meta num", title: "When it was stored" }, when(each.timestamp)));
}

function none(fields) {
  if (isNarrowed(fields)) return empty("No document matches", h("span", {}, "Take a filter away, or ", h("a", { href: link("documents") }, "show all documents"), "."));
  return empty("The memory is empty", h("span", {}, h("a", { href: link("home") }, "Two commands"), " fill it with what your agents said, or add a document here."));
}

const CHOICES = Object.entries({ decision: "Decision", documentation: "Note", code: "Code", chat: "Conversation" });
const split = text => text.split(",").map(each => each.trim()).filter(Boolean);

export async function add(context) {
  const outcome = await formDialog({
    title: "Add to the memory", action: "Add",
    fields: [
      { name: "content", label: "What is to be remembered", kind: "area", required: true, maxlength: 100000, placeholder: "We retry a failed payment three times, because …" },
      { name: "contentType", label: "Kind", kind: "choice", choices: CHOICES, value: "decision" },
      { name: "tags", label: "Tags", hint: "Separated by commas" },
    ],
    send: ({ content, contentType, tags }) => memory("index", { content, contentType, sessionId: "page", source: `page/${new Date().toISOString().replace(/[:.]/g, "-")}`, metadata: { tags: split(tags) } }),
    done: () => "Added",
  });
  if (!outcome) return;
  if (!outcome.documentId) return toast(outcome.warning ?? "Nothing was stored");
  location.hash = link("documents", {}, outcome.documentId);
  toast("Added to the memory.");
  context.reload();
}

async function document_(context, heading) {
  const named = tenantOf(context.fields);
  const [documentId] = context.rest;
  const [found, { versions }] = await Promise.all([
    memory("get", { documentId, ...named }, context),
    memory("history", { documentId, ...named }, context).catch(error => { if (error instanceof ApiError) return { versions: [] }; throw error; }),
  ]);
  const title = titleOf(found);
  put(heading, title);
  document.title = `${visible(title)} · rag-context`;
  const { tags = [], agent, decisionId, ...stated } = found.metadata;
  const isText = ([, value]) => typeof value === "string";
  const texts = Object.entries(stated).filter(isText);
  const further = Object.fromEntries(Object.entries(stated).filter(each => !isText(each)));
  const similar = h("section", { class: "box" }, h("h2", {}, "Similar documents"), h("button", { onclick: event => compare(similar, found, named, context, event.currentTarget) }, "Find similar documents"));
  const own = tags.filter(each => !each.startsWith(PROJECT));
  return [
    h("p", { class: "crumb" }, h("a", { href: link("documents", named) }, named.project ? `Documents of ${named.project}` : "Documents")),
    bar(heading, !named.pathHash && actions(found, named, context)),
    h("p", { class: "meta" }, h("span", {}, kindIcon(found.contentType), ` ${oneOf(found.contentType)}`), agentOf(agent), projectsOf(tags), own.map(each => h("a", { class: "tag", href: link("documents", { ...named, tags: each }) }, `#${each}`)), found.pinned && h("span", { class: "tag accent" }, icon("pin"), " pinned"), when(found.occurredAt)),
    found.supersededBy && note("warn", h("p", {}, "This version was corrected. ", h("a", { href: link("documents", named, found.supersededBy) }, "Read the version that took its place"), found.reason && `: ${found.reason}`)),
    h("div", { class: "reading" },
      h("div", { class: "stack" }, content(found, context.fields), similar),
      h("aside", { class: "stack", "aria-label": "About this document" },
        h("section", { class: "box" }, h("h2", {}, "About"), facts([
          ["Source", found.source], ["Session", h("a", { href: link("sessions", named, found.sessionId) }, sessionName({ sessionId: found.sessionId }))],
          ["Written", dated(found.occurredAt)], ["Indexed", dated(found.timestamp)], ["Words of", ORIGINS[found.origin]],
          ["Passages", whole(found.chunks)], ["Vectors", found.status === "pending" ? tag("not yet; keyword search finds it", "warn") : "complete"],
          ["Found by", found.retrievalStats.queryCount ? [`${counted(found.retrievalStats.queryCount, "search", "searches")}, last `, when(found.retrievalStats.lastRetrieved)] : "no search so far"],
          ["Expires", found.expiresAt && dated(found.expiresAt)],
          ...texts.map(([name, value]) => [name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " "), value]), ["Decision", decisionId],
          ["Further", Object.keys(further).length > 0 && h("pre", { class: "code" }, JSON.stringify(further, null, 2))],
          ["Id", h("code", {}, found.documentId)],
        ].filter(([, value]) => value))),
        versions.length > 1 && h("section", { class: "box" }, h("h2", {}, "Versions"), h("ol", { class: "rows" }, [...versions].reverse().map(each => h("li", {},
          each.documentId === found.documentId ? h("strong", { class: "grow" }, "This version") : h("a", { class: "grow", href: link("documents", named, each.documentId) }, each.supersededBy ? "Earlier version" : "Current version"),
          h("span", { class: "meta" }, each.reason, when(each.timestamp)))))),
        named.pathHash && promotion(found, named))),
  ];
}

function content(found, { query, lines }) {
  const words = wordsOf(query);
  const box = h("div", { class: "reader thread", role: "region", "aria-label": "Content", tabindex: 0 });
  const isCode = found.contentType === "code";
  const isChat = found.contentType === "chat";
  const read = () => put(box, isCode ? h("pre", { class: "code" }, colour(found.content, languageOf(found.source))) : (isChat && bubbles(found, words)) || markdown(found.content, words, isChat));
  const source = () => put(box, h("pre", { class: "code" }, found.content));
  read();
  if (isCode) return h("section", { class: "box" }, box);
  const group = h("div", { class: "segments", role: "group", "aria-label": "Show as" });
  const press = (isSource, focus) => {
    (isSource ? source : read)();
    put(group, [[false, "Read"], [true, "Source"]].map(([value, text]) => h("button", { "aria-pressed": String(value === isSource), onclick: () => press(value, true) }, text)));
    if (focus) group.querySelector("[aria-pressed=true]").focus();
  };
  press(false);
  return h("section", { class: "box" }, bar(h("h2", { class: "unseen" }, "Content"), lines && h("span", { class: "dim small" }, `Found in lines ${lines.replace("-", " to ")}`), h("div", { class: "end" }, group)), box);
}

function actions(found, named, context) {
  if (found.supersededBy) return null;
  const amend = (changed, text) => memory("correct", { documentId: found.documentId, content: found.content, ...named, ...changed }).then(() => {
    toast(text);
    context.reload();
  }, error => toast(error.message));
  const { tags = [] } = found.metadata;
  return h("div", { class: "end bar" },
    h("button", { onclick: () => correct(found, named) }, "Correct"),
    h("button", { onclick: async () => {
      const outcome = await formDialog({ title: "Tags", action: "Save", fields: [{ name: "tags", label: "Tags", value: tags.join(", "), hint: "Separated by commas. One that begins with project: says to which project it belongs." }], send: ({ tags: text }) => memory("correct", { documentId: found.documentId, content: found.content, tags: split(text), ...named }), done: () => "Saved" });
      if (outcome) context.reload();
    } }, "Tag"),
    h("button", { "aria-pressed": String(Boolean(found.pinned)), title: "Keep it although it expires or is old", onclick: () => amend({ pinned: !found.pinned }, found.pinned ? "No longer pinned." : "Pinned: it is kept although it expires or is old.") }, found.pinned ? "Unpin" : "Pin"),
    h("button", { class: "danger", onclick: () => forget(found, named) }, "Forget"));
}

async function correct(found, named) {
  const outcome = await formDialog({
    title: "Correct", action: "Save the correction", intro: "Agents find the new text from now on. The old one is kept, hidden, and can be restored.",
    fields: [{ name: "content", label: "What is right", kind: "area", value: found.content, required: true, maxlength: 100000 }, { name: "reason", label: "Why", hint: "The history shows it", maxlength: 1000 }],
    send: ({ content: text, reason }) => memory("correct", { documentId: found.documentId, content: text, reason, ...named }),
    done: () => "Corrected",
  });
  if (!outcome) return;
  const target = link("documents", named, outcome.documentId);
  if (location.hash === target) dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = target;
  const log = await ifAllowed(memory("log", { limit: 1, ...named }));
  toast("Corrected.", log && "Undo", async () => {
    await memory("undo", { id: log.entries[0].id, ...named });
    location.hash = link("documents", named);
  });
}

async function compare(box, found, named, context, button) {
  button.disabled = true;
  try {
    const answer = await memory("similar", { documentId: found.documentId, limit: 10, ...named }, context);
    put(box, h("h2", {}, "Similar documents"), answer.warning && note("warn", h("p", {}, answer.warning)),
      answer.results.length ? h("ul", { class: "rows" }, answer.results.map(each => h("li", {}, h("span", { class: "score" }, each.score.toFixed(2)), h("a", { class: "plain grow", href: link("documents", named, each.documentId) }, titleOf(each)), h("span", { class: "meta" }, kindName(each.contentType), when(each.occurredAt)))))
        : empty("No other document is similar", "There may be only this one."),
      answer.results.length > 0 && h("p", { class: "dim small" }, answer.method === "vector" ? "Compared by vectors." : "Compared by keywords alone."));
    say(counted(answer.results.length, "similar document"));
  } catch (error) {
    if (error.name === "AbortError") return;
    button.disabled = false;
    put(box, h("h2", {}, "Similar documents"), errorNote(error, () => compare(box, found, named, context, button)));
  }
}

async function forget(found, named) {
  const ways = [["This document", { documentId: found.documentId }], ["All of its source", { source: found.source }], ["All of its session", { sessionId: found.sessionId }]];
  const counts = await Promise.all(ways.map(([, fields]) => memory("forget", { ...fields, ...named, dryRun: true }))).catch(error => { toast(error.message); });
  if (!counts) return;
  const id = "forget-what";
  const select = h("select", { id }, ways.map(([title], at) => h("option", { value: at }, `${title} (${counted(counts[at].documents, "document")})`)));
  const outcome = await confirmed({
    preview: async () => null,
    question: () => ({ title: "Forget", body: [h("div", { class: "field" }, h("label", { for: id }, "What"), select), h("p", { class: "dim" }, "It goes to the trash for 30 days: nobody finds it any more, and indexing it again stores nothing. It can be undone. Files stay where they are.")], action: "Forget" }),
    work: () => memory("forget", { ...ways[select.value][1], ...named }),
    done: ({ documents: many }) => `${counted(many, "document")} forgotten`,
  });
  if (!outcome) return;
  location.hash = link("documents", named);
  toast(`${counted(outcome.documents, "document")} forgotten.`, outcome.id && "Undo", async () => {
    await memory("undo", { id: outcome.id, ...named });
    dispatchEvent(new HashChangeEvent("hashchange"));
  });
}
