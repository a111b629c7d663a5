// The frame: which view the address names, the stream of states, the theme, and search from anywhere.

import { ApiError, errorNote, follow, forgetKey, hasKey } from "./api.js";
import { h, note, put, say } from "./dom.js";
import { icon } from "./icons.js";
import { changes } from "./changes.js";
import { collections } from "./collections.js";
import { documents } from "./documents.js";
import { home } from "./home.js";
import { overview } from "./overview.js";
import { openPalette } from "./palette.js";
import { projects } from "./projects.js";
import { review } from "./review.js";
import { search } from "./search.js";
import { sessions } from "./sessions.js";
import { shown as shownToAgents } from "./shown.js";

// A view: (context, heading) -> elements; what it gives to context.onState is called with each state while it is shown.
// Those without an icon are not in the menu.
const VIEWS = {
  home: [home, "Home", "home"], sessions: [sessions, "Sessions", "chat"], documents: [documents, "Documents", "doc"],
  shown: [shownToAgents, "Shown to agents", "eye"], review: [review, "Review", "check"], changes: [changes, "Changes", "undo"],
  collections: [collections, "Collections", "stack"], projects: [projects, "Projects", "folder"], operations: [overview, "Operations", "gauge"],
  search: [search, "Search", null],
};

const content = document.getElementById("content");
const nav = document.getElementById("nav");
let shown = null;
let state = null;
let range = "24h";
let stream = null;

put(nav, h("ul", {}, Object.entries(VIEWS).filter(([, view]) => view[2]).map(([name, [, title, sign]]) => h("li", {}, h("a", { href: `#/${name}` }, icon(sign), h("span", {}, title))))));

function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/");
  const fields = Object.fromEntries(new URLSearchParams(query));
  return { view: Object.hasOwn(VIEWS, view) ? view : "home", rest: rest.map(readable), fields };
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
  const [draw, title] = VIEWS[view];
  document.title = `${title} · rag-context`;
  const heading = h("h1", { tabindex: -1 }, title);
  content.setAttribute("aria-busy", "true");
  try {
    const nodes = await draw(context, heading);
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
  const target = content.querySelector("[data-target]");
  if (moved) {
    (content.querySelector("[autofocus]") ?? heading).focus({ preventScroll: true });
    if (!target) scrollTo(0, 0);
  }
  target?.scrollIntoView({ block: "center" });
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
  if (linked === null) hideWhole();
  const [kind, text] = isLinked ? condition(state?.health) : linked === null ? ["good", "Reload for what is new"] : ["bad", "No connection, trying again"];
  const line = document.getElementById("live-text");
  if (line.textContent !== text) line.textContent = text;
  document.querySelector("#live .dot").className = `dot ${kind}`;
  if (lost) say("The connection to the server is lost; it is tried again.");
}

// What is about the whole memory is not for a key that is bound to parts of it.
function hideWhole() {
  for (const name of ["shown", "review", "changes", "operations"]) {
    VIEWS[name][2] = null;
    nav.querySelector(`[href="#/${name}"]`)?.parentNode.remove();
  }
  if (address().view === "operations") location.hash = "#/home";
}

function condition(health) {
  if (!health || health.error) return ["warn", "Live, health unknown"];
  if (!health.healthy) return ["bad", "Live, not healthy"];
  return health.indexing ? ["good", "Live, indexing"] : ["good", "Live, healthy"];
}

const THEMES = [["light", "Light"], ["dark", "Dark"], ["system", "System"]];

function theme(chosen) {
  if (chosen === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = chosen;
  const group = document.getElementById("theme");
  put(group, THEMES.map(([name, title]) => h("button", { "aria-pressed": String(name === chosen), onclick: () => {
    localStorage.setItem("theme", name);
    theme(name);
    group.querySelector("[aria-pressed=true]").focus();
  } }, title)));
}

function isTyping(target) {
  return target.matches("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]");
}

addEventListener("keydown", event => {
  const isCommand = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey);
  if (!isCommand && (event.key !== "/" || event.altKey || event.ctrlKey || event.metaKey || isTyping(event.target))) return;
  event.preventDefault();
  openPalette(VIEWS);
});
document.getElementById("find").addEventListener("click", () => openPalette(VIEWS));
document.getElementById("skip").addEventListener("click", event => {
  event.preventDefault();
  content.focus();
});
const forget = document.getElementById("forget-key");
forget.addEventListener("click", () => { forgetKey(); location.reload(); });
document.addEventListener("key", () => { forget.hidden = !hasKey(); });
forget.hidden = !hasKey();
addEventListener("hashchange", () => show(true));
addEventListener("pagehide", () => stream?.abort());
addEventListener("pageshow", event => { if (event.persisted) watch(); });

theme(THEMES.some(([name]) => name === localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system");
watch();
show(false);
