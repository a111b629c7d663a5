// Search with every option that the tool declares, and an explanation of each result.

import { errorNote, schema, tool, ApiError } from "./api.js";
import { meter } from "./chart.js";
import { counted, h, empty, link, ms, note, put, say, scrolling, table, tag, visible, when } from "./dom.js";
import { form, titled, typed } from "./form.js";
import { LEVELS, levelMeans } from "./overview.js";

const FIRST = ["mode", "limit", "contentType", "sessionId"];

export async function search(context, heading) {
  const { fields } = context;
  const declared = await schema("rag_context_search");
  const query = h("input", { type: "search", id: "query", name: "query", required: true, maxlength: 1000, value: fields.query, placeholder: "A question, a name, an error code", autocomplete: "off", enterkeyhint: "search" });
  const first = form(declared, { only: FIRST, fields });
  const others = form(declared, { without: [...FIRST, "query"], fields: { explain: "true", ...fields } });
  const used = Object.keys(fields).some(name => name !== "query" && name !== "explain" && !FIRST.includes(name));
  const results = h("div", { id: "results" });
  const send = event => {
    event.preventDefault();
    const asked = { query: query.value.trim(), ...first.values(), ...others.values() };
    if (declared.properties.explain && asked.explain !== "true") asked.explain = "false";
    const target = link("search", asked);
    if (location.hash === target) context.reload();
    else location.hash = target;
  };
  if (fields.query) run(results, declared, { explain: "true", ...fields }, context);
  else put(results, h("div", { class: "box" }, empty("What does the memory know?", "Ask in plain words or with exact names and error codes. Every answer says how it was obtained.")));
  return [
    heading,
    h("form", { class: "box", role: "search", onsubmit: send },
      h("div", { class: "ask" }, h("label", { class: "unseen", for: "query" }, "Query"), query, h("button", { class: "main" }, "Search")),
      h("div", { class: "fields gap" }, first.nodes),
      h("details", { open: used }, h("summary", {}, "All filters and options"), h("div", { class: "fields" }, others.nodes))),
    results,
  ];
}

async function run(results, declared, fields, context) {
  results.setAttribute("aria-busy", "true");
  put(results, h("p", { class: "dim" }, "Searching"));
  try {
    const answer = await tool("rag_context_search", typed(declared, fields), { signal: context.signal });
    put(results, h("div", { class: "grid" }, label(answer), answer.results.length ? answer.results.map((each, at) => card(each, at, fields)) : nothing(answer, fields), answer.standing && standing(answer.standing, fields)));
    say(`${counted(answer.results.length, "result")}, level ${answer.fallbackLevel}`);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof ApiError)) throw error;
    put(results, errorNote(error, () => run(results, declared, fields, context)));
  } finally {
    results.removeAttribute("aria-busy");
  }
}

// The days of a time in the question, in UTC; its end is the moment after the last of them.
function period({ timeRange: { since, until }, everyYear }) {
  const first = since?.slice(0, 10), last = until && new Date(new Date(until) - 1).toISOString().slice(0, 10);
  const days = !first ? `until ${last}` : !last ? `since ${first}` : first === last ? first : `${first} to ${last}`;
  return everyYear ? `${days}, and the same of other years` : days;
}

// How the answer was obtained.
function label(answer) {
  const [name] = LEVELS[answer.fallbackLevel], means = levelMeans(answer);
  const legs = Object.entries(answer.legs);
  return h("section", { class: "box w12", "aria-label": "How this answer was obtained" },
    h("div", { class: "bar" },
      tag(name, answer.fallbackLevel === 1 ? "good" : "warn"), h("span", {}, answer.fallbackLevel === 1 ? `the best level: ${means}` : means),
      h("span", { class: "dim" }, `${counted(answer.results.length, "result")} from ${counted(answer.totalIndexed, "document")} in ${ms(answer.latency)}`),
      answer.cached && tag("from the cache"), answer.noAnswer && tag("probably no answer here", "warn"), answer.omitted > 0 && tag(`${answer.omitted} left out for length`)),
    answer.interpreted && h("p", { class: "dim" }, `"${answer.interpreted.phrase}" is read as ${period(answer.interpreted)}; what is from near then comes first.`),
    answer.warning && note("warn", h("p", {}, answer.warning)),
    answer.circuitBreakerOpen && note("bad", h("p", {}, "The circuit breaker is open. The overview shows which component failed; a probe is let through by itself.")),
    legs.length > 0 && h("details", {}, h("summary", {}, "What each retriever did"), scrolling("Retrievers", table("Retrievers", [
      { name: "Retriever", of: ([leg]) => titled(leg), head: true },
      { name: "Status", of: ([, report]) => tag(report.status, report.status === "ok" ? "good" : report.status === "skipped" ? "" : "warn") },
      { name: "Time", of: ([, report]) => ms(report.latencyMs), num: true },
      { name: "Detail", of: ([, report]) => report.detail, cell: "wide" },
    ], legs))));
}

function nothing(answer, fields) {
  if (answer.fallbackLevel > 2) return h("div", { class: "box w12" }, empty("Nothing could be searched", h("span", {}, "This says nothing about what the memory knows. ", h("a", { href: link("overview") }, "The overview"), " shows what is down; try again in a moment.")));
  const filters = Object.keys(fields).filter(name => !["query", "mode", "limit", "explain", "strict", "agent"].includes(name));
  const advice = answer.totalIndexed === 0 ? "The memory is empty. Fill it with rag-context import-history, or rag-context index PATH."
    : filters.length ? `The search was narrowed by ${filters.map(name => titled(name).toLowerCase()).join(", ")}. Leave a filter out, or ask in other words.`
      : "Ask in other words, or set the minimum score to 0 to see what comes nearest.";
  return h("div", { class: "box w12" }, empty("Nothing found", advice));
}

// What the user asked for once and for all, and may apply to the query.
function standing(instructions, fields) {
  return h("section", { class: "box w12", "aria-label": "Standing instructions" },
    h("h2", {}, "Standing instructions that may apply"),
    instructions.map(each => [
      h("pre", { class: "text passage" }, trimmed(each.content)),
      h("p", { class: "where" }, h("a", { href: link("documents", tenant(fields), each.documentId) }, each.source), " · ", when(each.occurredAt), ` · relevance ${each.score.toFixed(2)}`)]));
}

const tenant = ({ project, branch, pathHash }) => ({ project, branch, pathHash });

function card(result, at, fields) {
  const named = tenant(fields);
  const lines = result.startLine ? `, lines ${result.startLine}–${result.endLine}` : "";
  const meta = result.metadata;
  const title = result.title || result.source;
  return h("article", { class: "box w12 result", "aria-label": `Result ${at + 1}` },
    h("div", { class: "bar" },
      h("h2", {}, `${at + 1}. `, result.documentId ? h("a", { href: link("documents", named, result.documentId) }, title) : title),
      h("span", { class: "score end" }, meter(result.score), `${result.score.toFixed(2)}`, h("span", { class: "dim small" }, "relevance"))),
    h("p", { class: "where" }, [result.source !== title && result.source, result.heading, result.startLine && lines.slice(2)].filter(Boolean).join(" · "), " · ", when(result.occurredAt)),
    result.context?.before && h("pre", { class: "text dim passage" }, trimmed(result.context.before)),
    h("pre", { class: result.contentType === "code" ? "code passage" : "text passage" }, trimmed(result.content)),
    result.context?.after && h("pre", { class: "text dim passage" }, trimmed(result.context.after)),
    h("div", { class: "tags" }, result.newerVersion && h("a", { href: link("documents", named, result.newerVersion.documentId) }, "Another value since ", when(result.newerVersion.occurredAt)), tag(result.contentType ?? "document", "accent"), result.sessionId && tag(`session ${result.sessionId}`), meta.agent && tag(`agent ${meta.agent}`), meta.category && tag(meta.category), (meta.tags ?? []).map(each => tag(`#${visible(each)}`))),
    result.explain && explanation(result, at));
}

// Without empty lines around it; the indentation of its first line stays.
const trimmed = text => text.replace(/^(\s*\n)+/, "").trimEnd();

const SIGNALS = { cosine: "Cosine", bm25: "BM25", idfShare: "Share of the query's terms, by weight" };
const IN_LEGS = { cosine: "vector", bm25: "text" };

// Ranks and raw scores, and how they became a place and a relevance.
function explanation({ explain, score }, at) {
  const rows = [
    ...Object.entries(explain.legs).map(([name, leg]) => [name === "vector" ? "Vector search" : name === "text" ? "Keyword search" : titled(name), `rank ${leg.rank}`, leg.score, name === "vector" ? "cosine" : "BM25"]),
    ...["vector", "text"].filter(name => !(name in explain.legs)).map(name => [name === "vector" ? "Vector search" : "Keyword search", "not among its best", null, ""]),
    ["After fusion", "orders the results", explain.fused, ""],
    ...Object.entries(explain.boosts).map(([name, value]) => [`Boost: ${titled(name).toLowerCase()}`, "added to the score", value, ""]),
    ...Object.entries(explain.signals).filter(([name]) => !(IN_LEGS[name] in explain.legs)).map(([name, value]) => [SIGNALS[name] ?? titled(name), "raw value", value, ""]),
    ["Relevance", "calibrated, 0 to 1", score, ""],
  ];
  return h("details", { class: "explain" }, h("summary", {}, "Why this result"), scrolling(`Explanation ${at + 1}`, table("Explanation", [
    { name: "Step", of: row => row[0], head: true },
    { name: "Place", of: row => row[1] },
    { name: "Value", of: row => (row[2] === null ? "" : `${row[2].toFixed(4)} ${row[3]}`), num: true },
  ], rows)));
}
