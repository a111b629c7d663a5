// Collections: their documents, a query to look at what they answer, and how they are created and filled.

import { ApiError, errorNote, ifAllowed, request, tool } from "./api.js";
import { formDialog, toast } from "./dialogs.js";
import { icon } from "./icons.js";
import { bar, counted, dated, empty, facts, h, link, put, say, scrolling, table, tag, whole } from "./dom.js";

const PAGE = 50;
const EMBEDDED_HERE = "rag-context";

export async function collections(context, heading) {
  return context.rest.length ? one(context, heading) : all(context, heading);
}

async function all(context, heading) {
  const [{ collections: found }, stores] = await Promise.all([tool("collection_list", {}, context), ifAllowed(request("/providers", context))]);
  return [
    bar(heading, h("span", { class: "dim" }, "Texts of programs of your own, apart from the agents' memory"), h("button", { class: "main end", onclick: create }, icon("plus"), "New collection")),
    h("section", { class: "box" }, found.length ? scrolling("Collections", table("Collections", [
      { name: "Name", head: true, of: each => [h("a", { href: link("collections", {}, each.name) }, each.name), each.read_only && tag("read only: another program's")] },
      { name: "Documents", of: each => whole(each.count), num: true },
      { name: "Dimension", of: each => (each.dimension ? whole(each.dimension) : "not bound yet"), num: true },
      { name: "Embeddings by", of: each => [each.embedding_provider ?? "the caller", each.embedding_model && ` (${each.embedding_model})`] },
    ], found)) : empty("No collection", "Make one here, and fill it with texts; programs use it by its name.")),
    stores && h("p", { class: "dim small" }, "Stores: ", stores.providers.filter(each => each.available !== false).map(each => each.name).join(", ")),
  ];
}

async function create() {
  const made = await formDialog({
    title: "New collection", action: "Create", intro: "This server embeds its texts.",
    fields: [{ name: "name", label: "Name", required: true, maxlength: 128 }],
    send: ({ name }) => tool("collection_create", { name, embedding_provider: EMBEDDED_HERE }), done: () => "Created",
  });
  if (made) location.hash = link("collections", {}, made.name);
}

async function fill(name, context) {
  const texts = text => text.split(/\n\s*\n/).map(each => each.trim()).filter(Boolean);
  const added = await formDialog({
    title: `Add texts to ${name}`, action: "Add",
    fields: [{ name: "text", label: "Texts", kind: "area", required: true, hint: "An empty line begins another document." }],
    send: ({ text }) => tool("collection_add", { name, documents: texts(text).map((each, at) => ({ id: `page-${Date.now()}-${at}`, text: each })) }), done: () => "Added",
  });
  if (!added) return;
  toast("The texts are added.");
  context.reload();
}

async function one(context, heading) {
  const [name] = context.rest;
  const found = await tool("collection_get", { name }, context);
  const own = Object.entries(found.metadata).filter(([key]) => !key.startsWith("embedding_"));
  put(heading, name);
  document.title = `${name} · rag-context`;
  const shown = h("section", { class: "box", "aria-label": "Documents" });
  const text = h("input", { type: "search", id: "ask-collection", required: true, maxlength: 10000, autocomplete: "off" });
  const mode = h("select", { id: "mode-collection" }, [["text", "keyword search"], ["hybrid", "hybrid search"], ["vector", "vector search"]].map(([value, title]) => h("option", { value }, title)));
  const where = h("input", { type: "text", id: "where-collection", autocomplete: "off", spellcheck: "false", placeholder: "{\"author\": \"Ada\"}", "aria-describedby": "where-hint" });
  const list = offset => turn(shown, { name, where: where.value.trim() || undefined }, offset, context);
  await list(0);
  return [
    h("p", { class: "crumb" }, h("a", { href: link("collections") }, "Collections")),
    bar(heading, !found.read_only && h("button", { class: "main end", onclick: () => fill(name, context) }, icon("plus"), "Add texts")),
    h("p", { class: "meta" }, counted(found.count, "document"), found.dimension ? `${whole(found.dimension)} dimensions` : "not bound yet", `embedded by ${found.embedding_provider ?? "the caller"}`, found.embedding_model ?? found.model?.name, found.connection !== "default" && `on ${found.connection}`, found.created && `created ${dated(found.created)}`),
    own.length > 0 && h("section", { class: "box" }, facts(own.map(([key, value]) => [key, plain(value)]))),
    h("form", { class: "box", onsubmit: event => { event.preventDefault(); query(shown, { name, text: text.value, mode: mode.value, where: where.value.trim() || undefined }, context, () => list(0)); } },
      h("div", { class: "fields" },
        h("div", { class: "field" }, h("label", { for: "ask-collection" }, "Query"), text),
        h("div", { class: "field" }, h("label", { for: "mode-collection" }, "Mode"), mode),
        h("div", { class: "field" }, h("label", { for: "where-collection" }, "Only where"), where, h("p", { class: "hint", id: "where-hint" }, "A filter on metadata, as JSON"))),
      h("div", { class: "bar gap" }, h("button", { type: "submit", class: "main" }, "Search"), h("button", { onclick: () => list(0) }, "List documents"))),
    shown,
  ];
}

// The filter as JSON; what is not JSON is said as the server would say it.
function filter(text) {
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError(400, { error: "Invalid 'where' filter: must be valid JSON", code: "INVALID_INPUT" });
  }
}

async function guarded(shown, again, work) {
  shown.setAttribute("aria-busy", "true");
  try {
    await work();
  } catch (error) {
    if (error.name === "AbortError") return;
    put(shown, errorNote(error, again));
  } finally {
    shown.removeAttribute("aria-busy");
  }
}

function turn(shown, { name, where }, offset, context) {
  const again = at => turn(shown, { name, where }, at, context);
  return guarded(shown, () => again(offset), async () => {
    const page = await tool("collection_documents", { name, where: filter(where), limit: PAGE, offset }, context);
    put(shown, h("h2", {}, counted(page.total, "document"), where && (page.total === 1 ? " that matches" : " that match")),
      page.documents.length ? documents(page.documents) : empty(where ? "No document matches" : "The collection is empty", where ? "Change the filter or leave it out." : "Add texts above, or from a program."),
      page.total > PAGE && h("nav", { class: "bar gap", "aria-label": "Pages" },
        h("button", { disabled: offset === 0, onclick: () => again(Math.max(0, offset - PAGE)) }, "Earlier"),
        h("button", { disabled: offset + PAGE >= page.total, onclick: () => again(offset + PAGE) }, "Later"),
        h("span", { class: "dim small" }, `${whole(offset + 1)} to ${whole(offset + page.documents.length)} of ${whole(page.total)}, by id`)));
    say(counted(page.total, "document"));
  });
}

function query(shown, { name, text, mode, where }, context, back) {
  return guarded(shown, back, async () => {
    const { results } = await tool("collection_query", { name, text, mode, where: filter(where), top_k: PAGE }, context);
    put(shown, h("h2", {}, counted(results.length, "result")), results.length ? documents(results) : empty("Nothing found", "Ask in other words, or change the mode or the filter."));
    say(counted(results.length, "result"));
  });
}

const plain = value => (typeof value === "object" ? JSON.stringify(value) : String(value));

function documents(found) {
  const scored = found.some(each => each.score !== undefined);
  return scrolling("Documents of the collection", table("Documents of the collection", [
    { name: "Id", head: true, of: each => h("code", {}, each.id), cell: "title" },
    ...(scored ? [{ name: "Score", of: each => each.score.toFixed(3), num: true }] : []),
    { name: "Text", of: each => h("pre", { class: "text" }, each.text.length > 600 ? `${each.text.slice(0, 600)} …` : each.text), cell: "wide" },
    { name: "Metadata", of: each => Object.entries(each.metadata).map(([key, value]) => `${key}: ${plain(value)}`).join(", "), cell: "wide" },
  ], found));
}
