"use strict";
const at = id => document.getElementById(id);
function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children.filter(child => child !== null && child !== undefined && child !== ""));
  return node;
}
let documentOfApi = {};
function resolve(schema) {
  let found = schema || {};
  while (found.$ref) found = found.$ref.slice(2).split("/").reduce((node, part) => node[part], documentOfApi);
  return found;
}
function typeOf(schema) {
  schema = resolve(schema);
  if (schema.enum) return schema.enum.map(value => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.type === "array") return "array of " + typeOf(schema.items);
  return (schema.type || "any") + (schema.format ? " (" + schema.format + ")" : "");
}
function limits(schema) {
  const names = { minimum: "≥ ", maximum: "≤ ", minLength: "characters ≥ ", maxLength: "characters ≤ ", maxItems: "items ≤ " };
  const said = Object.entries(names).filter(([name]) => schema[name] !== undefined).map(([name, text]) => text + schema[name]);
  if (schema.default !== undefined) said.push("default " + JSON.stringify(schema.default));
  return said.join(", ");
}
function rows(schema, depth) {
  schema = resolve(schema);
  if (schema.anyOf) schema = resolve(schema.anyOf[0]);
  if (schema.type === "array") return rows(schema.items, depth);
  const required = new Set(schema.required || []);
  const out = [];
  for (const [name, raw] of Object.entries(schema.properties || {})) {
    const property = resolve(raw);
    out.push(make("tr", {},
      make("td", {}, make("code", {}, "  ".repeat(depth) + name), required.has(name) ? " *" : ""),
      make("td", {}, make("code", {}, typeOf(property))),
      make("td", {}, [property.description, limits(property)].filter(Boolean).join(" — "))));
    out.push(...rows(property, depth + 1));
  }
  const further = schema.additionalProperties;
  if (further && typeof further === "object" && further.properties) {
    out.push(make("tr", {}, make("td", {}, make("code", {}, "  ".repeat(depth) + "{name}")), make("td", {}, "object"), make("td", {}, further.description || "")));
    out.push(...rows(further, depth + 1));
  }
  return out;
}
function table(schema) {
  const body = rows(schema, 0);
  if (!body.length) return make("p", { class: "dim" }, typeOf(schema));
  const head = make("tr", {}, make("th", { scope: "col" }, "Field"), make("th", { scope: "col" }, "Type"), make("th", { scope: "col" }, "Meaning"));
  return make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}
function example(content) {
  if (content.example === undefined) return "";
  return make("pre", { tabindex: "0" }, typeof content.example === "string" ? content.example : JSON.stringify(content.example, null, 2));
}
function section(title, content) {
  return Object.entries(content || {}).flatMap(([kind, media]) => [
    make("h3", {}, title, " ", make("code", { class: "dim" }, kind)), table(media.schema), example(media)]);
}
function responseRows(responses) {
  return Object.entries(responses).map(([status, raw]) =>
    make("tr", {}, make("td", {}, make("code", {}, status)), make("td", {}, resolve(raw).description)));
}
function operation(path, verb, described) {
  const inner = make("div", {}, make("p", {}, described.description || ""));
  if ((described.parameters || []).length) {
    const properties = Object.fromEntries(described.parameters.map(p => [p.name, { ...p.schema, description: p.description }]));
    const required = described.parameters.filter(p => p.required).map(p => p.name);
    inner.append(make("h3", {}, "Parameters"), table({ type: "object", properties, required }));
  }
  inner.append(...section("Body", described.requestBody && described.requestBody.content));
  inner.append(...section("Answer", resolve(described.responses["200"] || described.responses["201"]).content));
  inner.append(make("h3", {}, "Statuses"), make("table", {}, make("tbody", {}, ...responseRows(described.responses))));
  inner.append(trial(path, verb, described));
  return make("details", { id: described.operationId },
    make("summary", {}, make("span", { class: "verb " + verb }, verb), make("code", {}, path), make("span", {}, described.summary)), inner);
}
let apiKey = "";
function field(label, name, input) {
  input.setAttribute("name", name);
  return make("label", {}, make("code", {}, label), input);
}
function trial(path, verb, described) {
  const fields = (described.parameters || []).map(p => {
    const input = make("input", { "data-in": p.in, autocomplete: "off", spellcheck: "false" });
    if (p.schema.default !== undefined) input.setAttribute("placeholder", String(p.schema.default));
    if (p.required) input.setAttribute("required", "");
    return field(p.name + (p.required ? " *" : ""), p.name, input);
  });
  const [kind, media] = Object.entries((described.requestBody || {}).content || {})[0] || [];
  if (kind) {
    const text = media.example === undefined ? "" : typeof media.example === "string" ? media.example : JSON.stringify(media.example, null, 2);
    const body = make("textarea", { spellcheck: "false" }, text);
    fields.push(field("Body", "body", body));
  }
  const out = make("output", {});
  const form = make("form", { class: "try" });
  form.append(make("h3", {}, "Try it"), ...fields, make("button", {}, "Send"), out);
  form.addEventListener("submit", async event => {
    event.preventDefault();
    let address = path;
    const query = new URLSearchParams();
    for (const input of form.querySelectorAll("input")) {
      if (input.dataset.in === "path") address = address.replace("{" + input.name + "}", encodeURIComponent(input.value));
      else if (input.value !== "") query.append(input.name, input.value);
    }
    const options = { method: verb.toUpperCase(), headers: apiKey ? { "X-API-Key": apiKey } : {} };
    if (kind && form.elements.body.value.trim() !== "") {
      options.headers["Content-Type"] = kind;
      options.body = form.elements.body.value;
    }
    out.replaceChildren("…");
    try {
      const started = performance.now();
      const answer = await fetch(address + (query.size ? "?" + query : ""), options);
      let text = await answer.text();
      const ms = Math.round(performance.now() - started);
      try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON: shown as it came */ }
      out.replaceChildren(make("p", {}, make("strong", {}, String(answer.status)), " in " + ms + " ms"), make("pre", { tabindex: "0" }, text));
    } catch (error) { out.replaceChildren(make("p", {}, "No answer: " + error.message)); }
  });
  return form;
}
function show(api) {
  documentOfApi = api;
  at("title").textContent = api.info.title + " " + api.info.version;
  at("about").textContent = api.info.description;
  at("ask").hidden = true;
  const groups = new Map(api.tags.map(tag => [tag.name, []]));
  for (const [path, verbs] of Object.entries(api.paths))
    for (const [verb, described] of Object.entries(verbs)) groups.get(described.tags[0]).push(operation(path, verb, described));
  at("operations").replaceChildren(...[...groups].flatMap(([name, all]) => [make("h2", {}, name), ...all]),
    make("h2", {}, "errors"), table(api.components.schemas.Error));
}
async function load(key) {
  try {
    const answer = await fetch("/openapi.json", key ? { headers: { "X-API-Key": key } } : {});
    if (answer.status === 401) { at("ask").hidden = false; at("about").textContent = key ? "That key is not valid." : ""; return; }
    if (!answer.ok) throw new Error("status " + answer.status);
    apiKey = key;
    show(await answer.json());
  } catch (error) { at("about").textContent = "The description could not be read: " + error.message; }
}
at("ask").addEventListener("submit", event => { event.preventDefault(); load(at("key").value); });
load("");
