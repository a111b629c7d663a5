// The frame: which view the address names, the stream of states, and the line that says how everything is.

import { ApiError, errorNote, follow, forgetKey, hasKey } from "./api.js";
import { h, note, put, say } from "./dom.js";
import { collections } from "./collections.js";
import { documents } from "./documents.js";
import { metrics } from "./metrics.js";
import { overview } from "./overview.js";
import { projects } from "./projects.js";
import { receipts } from "./receipts.js";
import { search } from "./search.js";

// A view: (context) -> elements; what it gives to context.onState is called with each state, as long as it is shown.
const VIEWS = { overview, search, documents, projects, collections, receipts, metrics };
const TITLES = { overview: "Overview", search: "Search", documents: "Documents", projects: "Projects", collections: "Collections", receipts: "Shown to agents", metrics: "Metrics" };

const content = document.getElementById("content");
const nav = document.getElementById("nav");
let shown = null;
let state = null;
let range = "24h";
let stream = null;

function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/");
  const fields = Object.fromEntries(new URLSearchParams(query));
  return { view: Object.hasOwn(VIEWS, view) ? view : "overview", rest: rest.map(readable), fields };
}

function readable(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function show(moved) {
  const { view, rest, fields } = address();
  shown?.abort.abort();
  const context = { rest, fields, range, abort: new AbortController(), onState: null, setRange, state: () => state, reload: () => show(false) };
  context.signal = context.abort.signal;
  shown = context;
  for (const item of nav.querySelectorAll("a")) {
    if (item.hash === `#/${view}`) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  document.title = `${TITLES[view]} · rag-context`;
  const heading = h("h1", { tabindex: -1 }, TITLES[view]);
  content.setAttribute("aria-busy", "true");
  try {
    const nodes = await VIEWS[view](context, heading);
    if (shown !== context) return;
    put(content, nodes);
  } catch (error) {
    if (error.name === "AbortError" || shown !== context) return;
    const known = error instanceof ApiError;
    put(content, heading, known ? errorNote(error, () => show(false)) : note("bad", h("p", {}, "This view failed. Reload the page; if it fails again, report what the browser's console says.")));
    if (!known) reportError(error);
  }
  if (shown !== context) return;
  content.removeAttribute("aria-busy");
  if (moved) {
    heading.focus({ preventScroll: true });
    scrollTo(0, 0);
    document.querySelector("#nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  if (state) context.onState?.(state);
}

function setRange(chosen) {
  range = chosen;
  watch();
}

function watch() {
  stream?.abort();
  stream = new AbortController();
  const asked = range;
  follow(() => `/events?timeRange=${asked}`, stream.signal, seen => {
    state = { ...seen, range: asked };
    light(true);
    shown?.onState?.(state);
  }, light);
}

let linked = null;

function light(isLinked) {
  const lost = linked === true && !isLinked;
  linked = isLinked;
  const [kind, text] = isLinked ? condition(state?.health) : ["bad", "No connection, trying again"];
  const line = document.getElementById("live-text");
  if (line.textContent !== text) line.textContent = text;
  document.querySelector("#live .dot").className = `dot ${kind}`;
  if (lost) say("The connection to the server is lost; it is tried again.");
}

function condition(health) {
  if (!health || health.error) return ["warn", "Live, health unknown"];
  if (!health.healthy) return ["bad", "Live, not healthy"];
  return health.indexing ? ["good", "Live, indexing"] : ["good", "Live, healthy"];
}

document.getElementById("skip").addEventListener("click", event => {
  event.preventDefault();
  content.focus();
});
const forget = document.getElementById("forget-key");
forget.addEventListener("click", () => { forgetKey(); location.reload(); });
document.addEventListener("key", () => { forget.hidden = !hasKey(); });
addEventListener("hashchange", () => show(true));
addEventListener("pagehide", () => stream?.abort());
addEventListener("pageshow", event => { if (event.persisted) watch(); });

watch();
show(false);
