// How the memory is now: components, counts, searches over time. Each event redraws what changed.

import { latencyChart, legend, meter, searchesChart, shares, timelineTable } from "./chart.js";
import { bar, counted, empty, h, link, ms, note, percent, put, scrolling, table, tag, whole } from "./dom.js";

const RANGES = [["1h", "1 hour"], ["24h", "24 hours"], ["7d", "7 days"], ["30d", "30 days"]];
const KINDS = { healthy: "good", degraded: "warn", unavailable: "bad" };
export const LEVELS = {
  1: ["Level 1", "vector and keyword search", "fill1"],
  2: ["Level 2", "keyword search alone", "fill2"],
  3: ["Level 3", "nothing could be searched", "fill3"],
  4: ["Level 4", "circuit breaker open", "fill4"],
};

const INCOMPLETE = "hybrid search, vectors incomplete";

// What the level of an answer is called; keyword search is alone only where the answer is without any vectors.
export function levelMeans(answer) {
  return answer.fallbackLevel === 2 && answer.legs.vector?.status === "ok" ? INCOMPLETE : LEVELS[answer.fallbackLevel][1];
}

export function overview(context, heading) {
  const state = h("div");
  const figures = h("dl", { class: "figures eight" });
  const searches = h("div");
  const latency = h("div");
  const timeline = h("div");
  const levels = h("div");
  const agents = h("div");
  const components = h("div");
  const parts = { state, figures, searches, latency, timeline, levels, agents, components };
  const drawn = {};
  context.onState = seen => draw(parts, seen, drawn);
  const box = (title, width, ...children) => h("section", { class: `box ${width}` }, h("h2", {}, title), children);
  return [
    bar(heading, h("div", { class: "end whole" }, ranges(context))),
    state, figures,
    h("div", { class: "grid" },
      box("Searches", "w6", searches, legend([["fill1", "all"], ["fill2", "fallbacks"]])),
      box("Latency", "w6", latency, legend([["k1", "p95"], ["k2", "average"]])),
      h("div", { class: "w12" }, timeline),
      box("Answers by level", "w6", levels), box("Searches by agent", "w6", agents),
      box("Components", "w12", components)),
  ];
}

function ranges(context) {
  const group = h("div", { class: "segments", role: "group", "aria-label": "Time range" });
  const press = chosen => put(group, RANGES.map(([range, text]) => h("button", {
    "data-range": range, "aria-pressed": String(range === chosen),
    onclick: () => {
      context.setRange(range);
      press(range);
      group.querySelector(`[data-range="${range}"]`).focus();
    },
  }, text)));
  press(context.range);
  return group;
}

// Each part is drawn again only if what it shows has changed: what is being read or focused stays in place.
function draw(parts, seen, drawn) {
  const part = (name, value, make) => {
    const key = JSON.stringify(value ?? null);
    if (drawn[name] === key) return;
    drawn[name] = key;
    put(parts[name], value?.error ? note("warn", `${value.error}. It is tried again every second.`) : make(value));
  };
  const { health, stats, range } = seen;
  part("state", health && { ...health, latency: 0, components: health.components?.map(each => ({ ...each, latencyMs: 0 })) }, standing);
  part("components", health, componentsTable);
  part("figures", { health: { documents: health.indexedDocuments, pending: health.pendingDocuments }, stats }, figuresOf);
  const isLong = range === "7d" || range === "30d";
  part("searches", { ...stats, range }, value => (value.totalQueries ? searchesChart(value.timeline, isLong) : noSearches(range)));
  part("latency", { ...stats, range }, value => (value.totalQueries ? latencyChart(value.timeline, isLong) : noSearches(range)));
  part("levels", stats.queriesByLevel ? [stats.queriesByLevel, stats.queriesWithVectorsIncomplete] : stats, ([counts, incomplete]) => levelShares(counts, incomplete, range));
  part("agents", stats.queriesByAgent ?? stats, value => agentShares(value, range));
  const wasOpen = parts.timeline.querySelector("details")?.open;
  part("timeline", stats.timeline?.filter(bucket => bucket.queries) ?? stats, value => value.length > 0 && h("details", { open: wasOpen }, h("summary", {}, "The figures of both charts as a table"), h("div", { class: "box" }, scrolling("Searches over time", timelineTable(value)))));
}

function standing(health) {
  const ailing = health.components.filter(each => each.status !== "healthy");
  const notes = [];
  if (!health.healthy) {
    notes.push(note("bad", h("p", {}, h("strong", {}, "Not healthy. "), health.circuitBreakerOpen ? "The circuit breaker is open: searches are answered without results until a probe succeeds." : "Searches are answered at the best level that is left, and say so."),
      ailing.map(each => h("p", {}, `${each.name} (${each.role}) is ${each.status}${each.detail ? `: ${each.detail}` : ""}`))));
  }
  if (health.pendingDocuments > 0) {
    const done = Math.max(health.indexedDocuments - health.pendingDocuments, 0);
    notes.push(note("", h("p", {}, h("strong", {}, health.indexing ? "Indexing. " : "Waiting for the embedder. "), `${whole(done)} of ${counted(health.indexedDocuments, "document")} have their vectors; keyword search finds the others already.`),
      h("div", { class: "shares" }, h("div", { role: "progressbar", "aria-label": "Documents with vectors", "aria-valuemin": 0, "aria-valuemax": health.indexedDocuments, "aria-valuenow": done }, meter(health.indexedDocuments ? done / health.indexedDocuments : 0)))));
  }
  return notes.length > 0 && h("div", { class: "grid" }, notes.map(each => h("div", { class: "w12" }, each)));
}

function figuresOf({ health, stats }) {
  const searches = stats.totalQueries > 0;
  const figures = [
    ["Documents", whole(health.documents ?? 0)],
    ["Waiting for vectors", whole(health.pending ?? 0)],
    ["Searches", stats.error ? "unknown" : whole(stats.totalQueries)],
    ["Latency, average", searches ? ms(stats.avgLatency) : "none"],
    ["Latency, p95", searches ? ms(stats.p95Latency) : "none"],
    ["Latency, p99", searches ? ms(stats.p99Latency) : "none"],
    ["From the cache", searches ? percent(stats.cacheHitRate) : "none"],
    ["Fallbacks", searches ? percent(stats.fallbackRate) : "none"],
  ];
  return figures.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: value === "none" && "dim" }, split(value))));
}

// The unit stands smaller beside its number.
function split(value) {
  const [number, unit] = value.split(" ");
  return [number === "none" ? "–" : number, unit && h("small", {}, unit)];
}

const span = range => RANGES.find(([each]) => each === range)[1];

function noSearches(range) {
  return empty(`No searches in the last ${span(range)}`, h("span", {}, "Ask something under ", h("a", { href: link("search") }, "Search"), ", or let an agent ask."));
}

// The two kinds of level 2 each have a row.
function levelShares(counts, incomplete, range) {
  const rows = Object.entries(counts).map(([level, count]) => [...LEVELS[level], level === "2" ? count - incomplete : count]);
  rows.push(["Level 2", INCOMPLETE, "fill1", incomplete]);
  const shown = rows.filter(([, , , count]) => count > 0);
  if (!shown.length) return noSearches(range);
  return shares(shown.map(([name, means, fill, count]) => [[name, " ", h("span", { class: "dim" }, means)], count, fill]));
}

function agentShares(counts, range) {
  const rows = Object.entries(counts).sort((one, other) => other[1] - one[1]);
  if (!rows.length) return noSearches(range);
  const most = rows.slice(0, 8);
  const others = rows.slice(8).reduce((sum, [, count]) => sum + count, 0);
  return shares(others ? [...most, [`${counted(rows.length - 8, "other agent")}`, others]] : most);
}

function componentsTable(health) {
  const model = health.embeddingModel;
  return [
    scrolling("Components", table("Components", [
      { name: "Component", of: each => each.name, head: true },
      { name: "Role", of: each => each.role },
      { name: "Status", of: each => tag(each.status, KINDS[each.status]) },
      { name: "Latency", of: each => ms(each.latencyMs), num: true },
      { name: "Detail", of: each => each.detail, cell: "wide" },
    ], health.components)),
    h("p", { class: "dim small gap" }, model ? `Embedding model ${model.name}, ${whole(model.dimension)} dimensions. ` : "The embedding model is not known yet. ", `Version ${health.version}.`),
  ];
}
