// A form from a tool's own JSON Schema: every option that the server declares, with its description and its limits.

import { freshId, h } from "./dom.js";

const NAMES = {
  sessionId: "Session", contentType: "Content type", minScore: "Minimum score", maxTokens: "Maximum tokens",
  pathHash: "Path hash", since: "Since", until: "Until (before)", asOf: "As of", strict: "Strict", explain: "Explain each result",
  limit: "Results", mode: "Mode", agent: "Agent (for metrics)",
};

export function titled(name) {
  const spaced = name.replace(/([A-Z])/g, " $1").replaceAll("_", " ").toLowerCase();
  return NAMES[name] ?? spaced.charAt(0).toUpperCase() + spaced.slice(1);
}

// fields: {name -> value as in the address}; returns {node, values()}.
export function form(schema, { only, without = [], fields = {} }) {
  const all = schema?.properties ?? {};
  const names = (only ?? Object.keys(all)).filter(name => all[name] && !without.includes(name));
  const inputs = names.map(name => input(name, all[name], fields[name]));
  return { nodes: inputs.map(each => each.node), values: () => Object.fromEntries(inputs.map(each => [each.name, each.value()]).filter(([, value]) => value !== "")) };
}

function input(name, declared, value) {
  const id = freshId();
  const hint = `${id}-hint`;
  const described = { id, name, "aria-describedby": hint };
  const field = control(declared, described, value);
  const label = h("label", { for: id }, titled(name));
  const help = h("p", { class: "hint", id: hint }, declared.description);
  const node = field.check
    ? h("div", { class: "check" }, field.node, label, help)
    : h("div", { class: "field" }, label, field.node, help);
  return { name, node, value: field.value };
}

function control(declared, described, value) {
  if (declared.type === "boolean") {
    const node = h("input", { ...described, type: "checkbox", checked: (value ?? String(declared.default)) === "true" });
    return { node, check: true, value: () => (node.checked === (declared.default === true) ? "" : String(node.checked)) };
  }
  if (declared.enum) {
    const fallback = declared.default ?? "";
    const options = declared.default === undefined ? ["", ...declared.enum] : declared.enum;
    const node = h("select", described, options.map(each =>
      h("option", { value: each, selected: each === (value ?? fallback) }, each === "" ? "any" : each)));
    return { node, value: () => (node.value === fallback ? "" : node.value) };
  }
  const node = h("input", { ...described, ...kind(declared), value: shown(declared, value), autocomplete: "off", spellcheck: "false", placeholder: declared.default });
  return { node, value: () => kept(declared, node.value.trim()) };
}

function kind(declared) {
  if (declared.type === "integer" || declared.type === "number") {
    return { type: "number", min: declared.minimum, max: declared.maximum, step: declared.type === "integer" ? 1 : "any" };
  }
  return declared.format === "date-time" ? { type: "datetime-local" } : { type: "text", maxlength: declared.maxLength };
}

// Times stand in the address as the server reads them, and in the form in the time of this place.
function shown(declared, value) {
  if (declared.format !== "date-time" || !value) return value;
  const date = new Date(value);
  return Number.isNaN(date.valueOf()) ? "" : new Date(date - date.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
}

function kept(declared, text) {
  return text && declared.format === "date-time" ? new Date(text).toISOString() : text;
}

// From the texts of an address to what the tool takes.
export function typed(schema, fields) {
  const values = {};
  for (const [name, text] of Object.entries(fields)) {
    const declared = schema?.properties?.[name];
    if (!declared || text === "") continue;
    if (declared.type === "integer" || declared.type === "number") values[name] = Number(text);
    else if (declared.type === "boolean") values[name] = text === "true";
    else if (declared.type === "array") values[name] = text.split(",").map(each => each.trim()).filter(Boolean);
    else values[name] = text;
  }
  return values;
}
