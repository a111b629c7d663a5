// Elements from names and text. Text is only ever set as text: nothing here, or in what imports it, reads HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  // What stands in a line of facts is kept apart by its gaps, which only elements have between them.
  const apart = /\bmeta\b/.test(attributes.class);
  node.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false && child !== "").map(child => (apart && !(child instanceof Node) ? h("span", {}, child) : part(child))));
  return node;
}

// Control, direction and invisible characters are shown as signs: a name must not reorder or hide what stands beside it,
// and tags (e0000 to e007f) hide whole sentences that a model reads. Joiners (200c, 200d) stay: scripts and emoji need them.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

export function visible(text) {
  return String(text).replace(HIDDEN, sign => `\u2423${sign.codePointAt(0).toString(16).padStart(4, "0")}`);
}

function part(child) {
  return child instanceof Node ? child : document.createTextNode(visible(child));
}

// A button sends a form only where it says so.
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), tag === "button" ? { ...attributes, type: attributes.type || "button" } : attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function put(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter(Boolean).map(part));
  return node;
}

// A table that is a list of its rows on a narrow screen; the roles keep it a table there for screen readers.
// columns: [{name, of(row) -> child, num, head, cell}]
export function table(caption, columns, rows) {
  const head = columns.map(column => h("th", { scope: "col", role: "columnheader", class: column.num && "num" }, column.name));
  const body = rows.map(row => h("tr", { role: "row" }, columns.map(column => {
    const tag = column.head ? "th" : "td";
    const role = column.head ? "rowheader" : "cell";
    return h(tag, { role, scope: column.head && "row", class: column.cell ?? (column.num && "num"), "data-label": column.name }, column.of(row));
  })));
  return h("table", { class: "as-rows", role: "table" }, h("caption", { class: "unseen" }, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)), h("tbody", { role: "rowgroup" }, body));
}

// A part that scrolls sideways must be reachable by keyboard.
export function scrolling(label, ...children) {
  return h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: 0 }, children);
}

export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "" && !(Array.isArray(value) && !value.length));
  return h("dl", { class: "facts" }, shown.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

export const bar = (...children) => h("div", { class: "bar" }, children);

export function tag(text, kind = "") {
  return h("span", { class: `tag ${kind}`, title: visible(text) }, text);
}

export function empty(title, advice) {
  return h("div", { class: "empty" }, h("strong", {}, title), advice);
}

export function note(kind, ...children) {
  return h("div", { class: `note ${kind}`, role: kind === "bad" ? "alert" : undefined }, children);
}

export function say(text) {
  const line = document.getElementById("announce");
  line.textContent = "";
  setTimeout(() => { line.textContent = text; }, 50);
}

let ids = 0;
export function freshId() {
  ids += 1;
  return `n${ids}`;
}

const WHOLE = new Intl.NumberFormat("en");
const NEAR = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const DATE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

export const whole = value => WHOLE.format(value);
export const counted = (value, one, many = `${one}s`) => `${whole(value)} ${value === 1 ? one : many}`;
export const percent = (value, digits = 1) => `${(value * 100).toFixed(value === 0 || value === 1 ? 0 : digits)} %`;

export function ms(value) {
  if (value === undefined || value === null) return "";
  return value >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${value.toFixed(value < 10 ? 1 : 0)} ms`;
}

const STEPS = [["second", 60], ["minute", 60], ["hour", 24], ["day", 7], ["week", 5], ["month", 12], ["year", Infinity]];

export function when(text) {
  if (!text) return "";
  const date = new Date(text);
  if (Number.isNaN(date.valueOf())) return String(text);
  let value = (date - Date.now()) / 1000;
  let unit = "second";
  for (const [name, size] of STEPS) {
    unit = name;
    if (Math.abs(value) < size || name === "year") break;
    value /= name === "week" ? 4.35 : size;
  }
  return h("time", { datetime: date.toISOString(), title: DATE.format(date) }, NEAR.format(Math.round(value), unit));
}

export const dated = text => DATE.format(new Date(text));

// The hash has the view, what it shows and its fields: #/documents?project=app
export function link(view, fields = {}, rest = "") {
  const known = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(known).toString();
  return `#/${view}${rest === "" ? "" : `/${encodeURIComponent(rest)}`}${query && `?${query}`}`;
}
