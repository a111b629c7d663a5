// Calls to the server. The API key, where one is needed, is kept in this module's memory; in the storage of the tab's
// session too where its owner ticks the box.

import { bar, h, note } from "./dom.js";

const STORED = "rag-context-key";
let apiKey = sessionStorage.getItem(STORED) ?? "";
let asking = null;
let queue = Promise.resolve();

export class ApiError extends Error {
  constructor(status, body, retryAfter) {
    super(body.error || `The server answered ${status}`);
    this.status = status;
    this.code = body.code;
    this.details = body.details || [];
    this.requestId = body.requestId;
    this.retryAfter = retryAfter;
  }
}

export const hasKey = () => apiKey !== "";

export function forgetKey() {
  apiKey = "";
  sessionStorage.removeItem(STORED);
  document.dispatchEvent(new Event("key"));
}

export async function request(path, { body, signal, stream = false } = {}) {
  for (;;) {
    const used = apiKey;
    const headers = used ? { Authorization: `Bearer ${used}` } : {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const options = { method: body === undefined ? "GET" : "POST", headers, signal, cache: "no-store", credentials: "omit" };
    if (body !== undefined) options.body = JSON.stringify(body);
    const response = await reach(path, options);
    if (response.ok) return stream ? response : response.json();
    const error = await failure(response);
    if (error.status !== 401) throw error;
    if (apiKey === used) await askForKey(used === "" ? "" : "This key is not valid.");
  }
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { error: "The server does not answer.", code: "UNREACHABLE" });
  }
}

async function failure(response) {
  let body = {};
  try {
    body = await response.json();
  } catch { /* not ours: the status has to do */ }
  return new ApiError(response.status, body, response.headers.get("retry-after"));
}

// Null where a key that is bound to parts of the memory asks about the whole.
export const ifAllowed = call => call.catch(error => {
  if (error.code !== "FORBIDDEN") throw error;
  return null;
});

export const tool = (name, fields = {}, options = {}) => {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return request(`/tools/${name}`, { ...options, body: Object.fromEntries(given) });
};

export const memory = (name, fields, options) => tool(`rag_context_${name}`, fields, options);

// One dialog for all calls that wait for a key.
function askForKey(problem) {
  asking ??= openDialog(problem).finally(() => { asking = null; });
  return asking;
}

function openDialog(problem) {
  return new Promise(resolve => {
    const input = h("input", { type: "password", id: "api-key", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "api-key-hint api-key-fault", "aria-invalid": problem ? "true" : undefined });
    const keep = h("input", { type: "checkbox", id: "api-key-keep" });
    const form = h("form", { method: "dialog" },
      h("h2", { id: "api-key-title" }, "API key"),
      h("div", { class: "field" }, h("label", { for: "api-key" }, "This server asks for a key"), input,
        h("p", { class: "hint", id: "api-key-hint" }, "It stays in the memory of this tab. A new key is made with ", h("code", {}, "rag-context key NAME"), "."),
        h("p", { class: "fault", id: "api-key-fault", role: "alert" }, problem)),
      h("div", { class: "check" }, keep, h("label", { for: "api-key-keep" }, "Remember it until this tab is closed")),
      bar(h("button", { type: "submit", class: "main" }, "Continue")));
    const dialog = h("dialog", { "aria-labelledby": "api-key-title" }, form);
    dialog.addEventListener("cancel", event => event.preventDefault());
    form.addEventListener("submit", event => {
      event.preventDefault();
      apiKey = input.value.trim();
      if (keep.checked) sessionStorage.setItem(STORED, apiKey);
      else sessionStorage.removeItem(STORED);
      dialog.remove();
      document.dispatchEvent(new Event("key"));
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

const GONE = "It may have been deleted meanwhile. Go back to the list and load it again.";
const DOWN = "Operations shows which component is down. It is tried again by itself.";
const ADVICE = {
  UNREACHABLE: "Is it running? Start it with rag-context serve, then try again.",
  FORBIDDEN: "Use a key that may do this: rag-context key NAME --access write makes one.",
  NOT_FOUND: GONE, DOCUMENT_NOT_FOUND: GONE,
  RATE_LIMITED: "Wait a moment, then try again.", OVERLOADED: "The server is busy. Wait a moment, then try again.",
  SERVICE_UNAVAILABLE: DOWN, DATABASE_ERROR: DOWN, EMBEDDING_SERVICE_ERROR: DOWN,
  INTERNAL_ERROR: "The server's log has the cause under this request id.", INVALID_INPUT: "Correct what is named, then try again.",
};

// What happened, what to do next, and a way to try again; an error of the page itself is thrown on.
export function errorNote(error, again) {
  if (!(error instanceof ApiError)) throw error;
  const named = error.details.map(each => each.message).filter(message => message !== error.message);
  const wait = error.retryAfter ? ` Suggested wait: ${error.retryAfter} s.` : "";
  return note("bad",
    h("p", {}, h("strong", {}, error.message)),
    named.map(message => h("p", {}, message)),
    ADVICE[error.code] && h("p", {}, ADVICE[error.code] + wait),
    error.requestId && h("p", { class: "small" }, `Request ${error.requestId}`),
    again && h("button", { onclick: again }, "Try again"));
}

// Events until `signal` ends them: `onState` gets the data, `onLink` whether there is a connection; null: not for this key.
export async function follow(path, signal, onState, onLink) {
  for (let failures = 0; !signal.aborted; failures += 1) {
    try {
      const response = await request(path(), { signal, stream: true });
      for await (const data of eventsOf(response.body)) {
        failures = 0;
        onLink(true);
        onState(data);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.code === "FORBIDDEN") return void onLink(null);
      if (!(error instanceof ApiError || error instanceof TypeError)) throw error;
    }
    onLink(false);
    await pause(Math.min(1000 * 2 ** failures, 15000), signal);
  }
}

async function* eventsOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").find(line => line.startsWith("data: "));
      if (data) yield JSON.parse(data.slice(6));
    }
  }
}

function pause(time, signal) {
  return new Promise(resolve => {
    const timer = setTimeout(resolve, time);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
