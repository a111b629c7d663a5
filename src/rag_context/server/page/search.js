// Search: facets beside the results, the words of the question marked, and an explanation of each result.

import { errorNote, memory } from "./api.js";
import { meter } from "./chart.js";
import { colour, languageOf } from "./code.js";
import { bar, counted, empty, h, link, ms, note, put, say, scrolling, table, tag, visible, when } from "./dom.js";
import { ORIGINS, PROJECT, facets, filterOf, isNarrowed, oneOf, tenantOf } from "./facets.js";
import { HERE } from "./home.js";
import { icon, kindIcon } from "./icons.js";
import { markdown, wordsOf } from "./markdown.js";
import { LEVELS, levelMeans } from "./overview.js";
import { agentOf, projectsOf, sessionName, titleOf } from "./sessions.js";

const MODES = [["hybrid", "Vectors and keywords"], ["vector", "Vectors alone"], ["text", "Keywords alone"]];
const COUNTS = ["5", "10", "20"];

export async function search(context, heading) {
  const { fields } = context;
  const query = h("input", { type: "search", id: "query", name: "query", required: true, maxlength: 1000, value: fields.query, placeholder: "A question, a name, an error code", autocomplete: "off", enterkeyhint: "search", autofocus: !fields.query });
  const mode = h("select", { id: "mode" }, MODES.map(([value, text]) => h("option", { value, selected: value === (fields.mode ?? "hybrid") }, text)));
  const limit = h("select", { id: "limit" }, COUNTS.map(value => h("option", { value, selected: value === (fields.limit ?? "10") }, value)));
  const asOf = h("input", { type: "date", id: "as-of", value: fields.asOf?.slice(0, 10) });
  const older = h("input", { type: "checkbox", id: "older", checked: fields.includeSuperseded === "true" });
  const results = h("div", { id: "results", class: "stack" });
  const send = event => {
    event?.preventDefault();
    const target = link("search", { ...fields, query: query.value.trim(), mode: mode.value === "hybrid" ? "" : mode.value, limit: limit.value === "10" ? "" : limit.value, asOf: asOf.value && new Date(asOf.value).toISOString(), includeSuperseded: older.checked ? "true" : "" });
    if (location.hash === target) context.reload();
    else location.hash = target;
  };
  if (fields.query) run(results, fields, context);
  else put(results, h("div", { class: "box" }, empty("What does the memory know?", "Ask in plain words or with exact names and error codes. Every answer says how it was obtained.")));
  const { facets: counts } = await memory("list", { ...filterOf(fields), limit: 1, facets: true }, context).catch(error => { if (error.name === "AbortError") throw error; return {}; });
  const field = (label, node) => h("div", { class: "field" }, h("label", { for: node.id }, label), node);
  return [
    bar(heading, fields.project && tag(`in ${fields.project}`, "accent")),
    h("form", { role: "search", class: "ask-form", onsubmit: send },
      h("div", { class: "ask" }, h("label", { class: "unseen", for: "query" }, "Question"), query, h("button", { type: "submit", class: "main" }, "Search")),
      h("details", { class: "options", open: Boolean(fields.mode || fields.asOf || fields.includeSuperseded) }, h("summary", {}, "Options"), h("div", { class: "fields" }, field("Search by", mode), field("Results at most", limit), field("As it was known on", asOf), h("div", { class: "check" }, older, h("label", { for: "older" }, "Corrected versions too"))))),
    h("div", { class: "with-facets" }, counts ? facets("search", fields, counts, sessionName) : h("div"), results),
  ];
}

async function run(results, fields, context) {
  results.setAttribute("aria-busy", "true");
  put(results, h("p", { class: "dim" }, "Searching"));
  const { query, mode, asOf } = fields;
  try {
    const answer = await memory("search", { query, mode, asOf, ...filterOf(fields), limit: Number(fields.limit) || 10, includeSuperseded: fields.includeSuperseded === "true" || undefined, explain: true, agent: HERE }, context);
    const found = answer.results;
    put(results, label(answer), found.length ? found.map((each, at) => card(each, at, fields)) : nothing(answer, fields), answer.standing && standing(answer.standing, fields));
    say(`${counted(found.length, "result")}, level ${answer.fallbackLevel}`);
  } catch (error) {
    if (error.name === "AbortError") return;
    put(results, errorNote(error, () => run(results, fields, context)));
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
  return h("section", { class: "label", "aria-label": "How this answer was obtained" },
    h("details", {}, h("summary", {}, h("span", { class: "meta" },
      h("span", {}, `${counted(answer.results.length, "result")} from ${counted(answer.totalIndexed, "document")} in ${ms(answer.latency)}`),
      tag(`${name}: ${means}`, answer.fallbackLevel === 1 ? "good" : "warn"),
      answer.cached && tag("from the cache"), answer.noAnswer && tag("probably no answer here", "warn"), answer.omitted > 0 && tag(`${answer.omitted} left out for length`))),
      legs.length > 0 && scrolling("Retrievers", table("Retrievers", [
        { name: "Retriever", of: ([leg]) => leg.charAt(0).toUpperCase() + leg.slice(1), head: true },
        { name: "Status", of: ([, report]) => tag(report.status, report.status === "ok" ? "good" : report.status === "skipped" ? "" : "warn") },
        { name: "Time", of: ([, report]) => ms(report.latencyMs), num: true },
        { name: "Detail", of: ([, report]) => report.detail, cell: "wide" },
      ], legs))),
    answer.interpreted && h("p", { class: "dim small" }, `"${answer.interpreted.phrase}" is read as ${period(answer.interpreted)}; what is from near then comes first.`),
    answer.warning && note("warn", h("p", {}, answer.warning)));
}

function nothing(answer, fields) {
  if (answer.fallbackLevel > 2) return h("div", { class: "box" }, empty("Nothing could be searched", h("span", {}, "This says nothing about what the memory knows. ", h("a", { href: link("operations") }, "Operations"), " shows what is down; try again in a moment.")));
  const advice = answer.totalIndexed === 0 ? h("span", {}, "The memory is empty: ", h("a", { href: link("home") }, "two commands"), " fill it.")
    : isNarrowed(fields) ? h("span", {}, "The search was narrowed by filters. ", h("a", { href: link("search", { query: fields.query }) }, "Search without them"), ", or ask in other words.")
      : "Ask in other words, or with a name that stands in the text.";
  return h("div", { class: "box" }, empty("Nothing found", advice));
}

// What the user asked for once and for all, and may apply to the query.
function standing(instructions, fields) {
  return h("section", { class: "box", "aria-label": "Standing instructions" },
    h("h2", {}, "Standing instructions that may apply"),
    instructions.map(each => [
      h("pre", { class: "text passage" }, trimmed(each.content)),
      h("p", { class: "meta" }, h("a", { href: link("documents", tenantOf(fields), each.documentId) }, each.source), when(each.occurredAt), `relevance ${each.score.toFixed(2)}`)]));
}

function card(result, at, fields) {
  const named = tenantOf(fields);
  const words = wordsOf(fields.query);
  const lines = result.startLine ? `${result.startLine}-${result.endLine}` : undefined;
  const meta = result.metadata;
  const title = titleOf(result);
  const isCode = result.contentType === "code";
  const deep = { ...named, query: fields.query, lines };
  const tags = (meta.tags ?? []).filter(each => !each.startsWith(PROJECT));
  const around = text => text && h("p", { class: "around dim" }, trimmed(text));
  return h("article", { class: "box result", "aria-label": `Result ${at + 1}` },
    bar(h("span", { class: "kind" }, kindIcon(result.contentType)),
      h("h2", { class: "grow" }, result.documentId ? h("a", { class: "plain", href: link("documents", deep, result.documentId) }, title) : title),
      h("span", { class: "score", title: "Relevance, 0 to 1" }, meter(result.score), result.score.toFixed(2), h("span", { class: "unseen" }, " relevance"))),
    h("p", { class: "meta" }, oneOf(result.contentType ?? "document"), agentOf(meta.agent), projectsOf(meta.tags ?? []), result.contentType !== "chat" && result.source !== title && h("span", { class: "cut", title: visible(result.source) }, result.source), result.heading && result.heading !== title && h("span", { class: "cut" }, result.heading), lines && `lines ${lines.replace("-", "–")}`, ORIGINS[result.origin] && `words of ${ORIGINS[result.origin]}`, when(result.occurredAt)),
    result.newerVersion && note("warn", h("p", {}, h("a", { href: link("documents", named, result.newerVersion.documentId) }, "Another value since ", when(result.newerVersion.occurredAt)))),
    result.supersededBy && tag("corrected since", "warn"),
    around(result.context?.before),
    h("div", { class: "passage" }, isCode ? h("pre", { class: "code" }, colour(trimmed(result.content), languageOf(result.source))) : markdown(trimmed(result.content), words, result.contentType === "chat")),
    around(result.context?.after),
    h("div", { class: "bar foot-bar" }, result.sessionId && !named.pathHash && h("a", { class: "small", href: link("sessions", { ...named, query: fields.query, at: result.documentId, lines }, result.sessionId) }, icon("chat"), " Read in its session"),
      tags.slice(0, 5).map(each => h("a", { class: "tag", href: link("search", { ...fields, tags: each }) }, `#${each}`)),
      (result.references ?? []).filter(each => each.status !== "fresh" && each.status !== "unverifiable").map(each => tag(`${each.text}: ${each.status === "moved" ? `now ${each.now}` : "no longer exists"}`, "warn"))),
    result.explain && explanation(result, at));
}

// Without empty lines around it; the indentation of its first line stays.
const trimmed = text => text.replace(/^(\s*\n)+/, "").trimEnd();

const named_ = name => name.charAt(0).toUpperCase() + name.slice(1).replace(/([A-Z])/g, " $1").replaceAll("_", " ").toLowerCase();

const SIGNALS = { cosine: "Cosine", bm25: "BM25", idfShare: "Share of the query's terms, by weight" };
const IN_LEGS = { cosine: "vector", bm25: "text" };

// Ranks and raw scores, and how they became a place and a relevance.
function explanation({ explain, score }, at) {
  const rows = [
    ...Object.entries(explain.legs).map(([name, leg]) => [name === "vector" ? "Vector search" : name === "text" ? "Keyword search" : named_(name), `rank ${leg.rank}`, leg.score, name === "vector" ? "cosine" : "BM25"]),
    ...["vector", "text"].filter(name => !(name in explain.legs)).map(name => [name === "vector" ? "Vector search" : "Keyword search", "not among its best", null, ""]),
    ["After fusion", "orders the results", explain.fused, ""],
    ...Object.entries(explain.boosts).map(([name, value]) => [`Boost: ${named_(name).toLowerCase()}`, "added to the score", value, ""]),
    ...Object.entries(explain.signals).filter(([name]) => !(IN_LEGS[name] in explain.legs)).map(([name, value]) => [SIGNALS[name] ?? named_(name), "raw value", value, ""]),
    ["Relevance", "calibrated, 0 to 1", score, ""],
  ];
  return h("details", { class: "explain" }, h("summary", {}, "Why this result"), scrolling(`Explanation ${at + 1}`, table("Explanation", [
    { name: "Step", of: row => row[0], head: true },
    { name: "Place", of: row => row[1] },
    { name: "Value", of: row => (row[2] === null ? "" : `${row[2].toFixed(4)} ${row[3]}`), num: true },
  ], rows)));
}
