// Documents: a list with filters that is read page by page, and one document as it was stored.

import { ApiError, errorNote, schema, tool } from "./api.js";
import { confirmed } from "./dialogs.js";
import { counted, dated, empty, facts, h, link, note, put, say, scrolling, table, tag, when, whole } from "./dom.js";
import { form, titled, typed } from "./form.js";
import { promotion } from "./promotion.js";

const PAGE = 50;

export async function documents(context, heading) {
  return context.rest.length ? document_(context, heading) : list(context, heading);
}

const tenantOf = ({ project, branch, pathHash }) => ({ project, branch, pathHash });

async function list(context, heading) {
  const { fields } = context;
  const declared = await schema("rag_context_list");
  const filters = form(declared, { without: ["limit", "cursor"], fields });
  const shown = h("div", { class: "box" });
  const send = event => {
    event.preventDefault();
    const target = link("documents", filters.values());
    if (location.hash === target) context.reload();
    else location.hash = target;
  };
  const set = Object.keys(filters.values()).length;
  await turn(shown, context, declared, [undefined]);
  return [
    heading,
    h("form", { class: "box", onsubmit: send },
      h("details", { open: set > 0 }, h("summary", {}, set ? `Filters (${set} set)` : "Filters"),
        h("div", { class: "fields" }, filters.nodes),
        h("div", { class: "bar gap" }, h("button", { class: "main" }, "Show"), set > 0 && h("a", { class: "button", href: link("documents") }, "Clear all")))),
    shown,
  ];
}

// `cursors`: those of the pages up to this one; the first page has none.
async function turn(shown, context, declared, cursors, focus) {
  shown.setAttribute("aria-busy", "true");
  try {
    const request = { ...typed(declared, context.fields), limit: PAGE, cursor: cursors.at(-1) };
    const page = await tool("rag_context_list", request, { signal: context.signal });
    const move = next => turn(shown, context, declared, next, true);
    put(shown, page.documents.length ? rows(page, context.fields) : none(context.fields), pager(page, cursors, move));
    if (focus) {
      say(`Page ${cursors.length}, ${counted(page.documents.length, "document")}`);
      shown.querySelector("button:not(:disabled)")?.focus({ preventScroll: true });
      shown.scrollIntoView({ block: "start" });
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof ApiError)) throw error;
    put(shown, errorNote(error, () => turn(shown, context, declared, cursors, true)));
  } finally {
    shown.removeAttribute("aria-busy");
  }
}

function rows(page, fields) {
  const named = tenantOf(fields);
  return scrolling("Documents", table("Documents, newest first", [
    { name: "Title", head: true, of: each => h("a", { href: link("documents", named, each.documentId) }, each.title || each.source), cell: "title" },
    { name: "Type", of: each => [tag(each.contentType), each.status === "pending" && [" ", tag("waiting for vectors", "warn")]] },
    { name: "Session", of: each => h("span", { class: "cut", title: each.sessionId }, each.sessionId) },
    { name: "Source", of: each => h("span", { class: "cut", title: each.source }, each.source) },
    { name: "Said or written", of: each => when(each.occurredAt), num: true },
    { name: "Indexed", of: each => when(each.timestamp), num: true },
  ], page.documents));
}

function none(fields) {
  if (Object.keys(fields).length) return empty("No document matches", h("span", {}, "Leave a filter out, or ", h("a", { href: link("documents") }, "show all documents"), ". To find a document by its content, use ", h("a", { href: link("search") }, "Search"), "."));
  return empty("The memory is empty", h("span", {}, "Take in what your agents said on this machine with ", h("code", {}, "rag-context import-history"), ", files with ", h("code", {}, "rag-context index PATH"), ", or let an agent call ", h("code", {}, "rag_context_index"), "."));
}

function pager(page, cursors, move) {
  if (cursors.length === 1 && !page.nextCursor) return page.documents.length > 0 && h("p", { class: "dim small gap" }, `${counted(page.documents.length, "document")}, newest first`);
  const first = (cursors.length - 1) * PAGE;
  return h("nav", { class: "bar gap", "aria-label": "Pages" },
    h("button", { type: "button", disabled: cursors.length === 1, onclick: () => move(cursors.slice(0, -1)) }, "Newer"),
    h("button", { type: "button", disabled: !page.nextCursor, onclick: () => move([...cursors, page.nextCursor]) }, "Older"),
    h("span", { class: "dim small" }, `${whole(first + 1)} to ${whole(first + page.documents.length)}, newest first`));
}

async function document_(context, heading) {
  const named = tenantOf(context.fields);
  const [documentId] = context.rest;
  const found = await tool("rag_context_get", { documentId, ...named }, { signal: context.signal });
  put(heading, found.title || found.source);
  document.title = `${found.title} · rag-context`;
  const { tags = [], agent, decisionId, ...stated } = found.metadata;
  const isText = ([, value]) => typeof value === "string";
  const texts = Object.entries(stated).filter(isText);
  const further = Object.fromEntries(Object.entries(stated).filter(each => !isText(each)));
  const similar = h("section", { class: "box" }, h("h2", {}, "Similar documents"), h("button", { type: "button", onclick: event => compare(similar, found, named, context, event.currentTarget) }, "Find similar documents"));
  const times = found.retrievalStats;
  return [
    h("p", {}, h("a", { href: link("documents", named) }, named.project ? `Documents of ${named.project}` : "All documents")),
    heading,
    h("section", { class: "box", "aria-label": "About this document" }, facts([
      ["Source", found.source], ["Session", h("a", { href: link("documents", { ...named, sessionId: found.sessionId }) }, found.sessionId)],
      ["Type", found.contentType], ["Said or written", dated(found.occurredAt)], ["Indexed", dated(found.timestamp)],
      ["Chunks", whole(found.chunks)], ["Vectors", found.status === "pending" ? tag("not yet; keyword search finds it", "warn") : "complete"],
      ["Found by", times.queryCount ? [`${counted(times.queryCount, "search", "searches")}, last `, when(times.lastRetrieved)] : "no search so far"],
      ["Agent", agent], ...texts.map(([name, value]) => [titled(name), value]), ["Decision", decisionId], ["Tags", tags.length > 0 && h("span", { class: "tags" }, tags.map(each => tag(each)))],
      ["Further metadata", Object.keys(further).length > 0 && h("pre", { class: "code" }, JSON.stringify(further, null, 2))],
      ["Id", h("code", {}, found.documentId)],
    ].filter(([, value]) => value !== false))),
    named.project && promotion(found, named),
    h("section", { class: "box" }, h("h2", {}, "Content"), h("div", { class: "reader", role: "region", "aria-label": "Content", tabindex: 0 }, h("pre", { class: found.contentType === "code" ? "code" : "text" }, found.content))),
    similar, named.project ? null : removal(found),
  ];
}

async function compare(box, found, named, context, button) {
  button.disabled = true;
  try {
    const answer = await tool("rag_context_similar", { documentId: found.documentId, limit: 10, ...named }, { signal: context.signal });
    put(box, h("h2", {}, "Similar documents"), answer.warning && note("warn", h("p", {}, answer.warning)),
      answer.results.length ? h("ul", { class: "rows" }, answer.results.map(each => h("li", {}, h("span", { class: "score" }, each.score.toFixed(2)), h("a", { href: link("documents", named, each.documentId) }, each.title || each.source), tag(each.contentType), h("span", { class: "dim small end" }, when(each.occurredAt)))))
        : empty("No other document is similar", "There may be only this one."),
      answer.results.length > 0 && h("p", { class: "dim small" }, answer.method === "vector" ? "Compared by vectors." : "Compared by keywords alone."));
    say(counted(answer.results.length, "similar document"));
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof ApiError)) throw error;
    button.disabled = false;
    put(box, h("h2", {}, "Similar documents"), errorNote(error, () => compare(box, found, named, context, button)));
  }
}

function removal(found) {
  const ways = [
    ["Delete this document", { documentId: found.documentId }, "this document"],
    ["Delete everything of this source", { source: found.source }, `all documents of the source ${found.source}`],
    ["Delete everything of this session", { sessionId: found.sessionId }, `all documents of the session ${found.sessionId}`],
  ];
  const fault = h("div");
  return h("section", { class: "box" }, h("h2", {}, "Delete"),
    h("p", { class: "dim" }, "Each first says how much it would delete, and asks."),
    h("div", { class: "bar gap" }, ways.map(([text, fields, what]) => h("button", { type: "button", class: "danger", onclick: () => remove(fields, what, fault) }, text))), fault);
}

async function remove(fields, what, fault) {
  put(fault);
  try {
    const question = ({ deletedCount }) => {
      const many = counted(deletedCount, "document");
      const body = [h("p", {}, `This deletes ${what}: ${many} with the passages and vectors.`), h("p", {}, h("strong", {}, "It cannot be undone."), " Files that were indexed stay where they are.")];
      return { title: `Delete ${many}?`, body, action: `Delete ${many}` };
    };
    const outcome = await confirmed({
      preview: () => tool("rag_context_delete", { ...fields, dryRun: true }),
      question,
      work: () => tool("rag_context_delete", { ...fields, confirm: true }),
      done: result => `${counted(result.deletedCount, "document")} deleted`,
    });
    if (outcome) location.hash = link("documents");
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    put(fault, errorNote(error, () => remove(fields, what, fault)));
  }
}
