// Questions before anything is changed. The focus returns to where it was.

import { ApiError, errorNote } from "./api.js";
import { bar, freshId, h, put, say } from "./dom.js";

let isAsking = false;

// `preview` says what would happen, and `question` of it what the dialog says; `work` runs when the answer is yes, and
// its error is shown in the dialog. Resolves to what it gave, or to null. While one question is open there is no other.
export async function confirmed({ preview, question, work, done }) {
  if (isAsking) return null;
  isAsking = true;
  const before = document.activeElement;
  try {
    return await ask({ ...question(await preview()), work, done, before });
  } finally {
    isAsking = false;
  }
}

// A form in a dialog. `send` gets the values by name. Resolves to what it gave, or to null.
// fields: [{name, label, kind: "text" | "area" | "choice", value, hint, choices, required, maxlength}]
export function formDialog({ title, intro, fields, action, send, done }) {
  if (isAsking) return Promise.resolve(null);
  isAsking = true;
  const inputs = fields.map(field => ({ ...field, node: input(field) }));
  const body = [intro && h("p", { class: "dim" }, intro), inputs.map(({ label, hint, node }) => h("div", { class: "field" }, h("label", { for: node.id }, label), node, hint && h("p", { class: "hint", id: `${node.id}-hint` }, hint)))];
  const work = () => send(Object.fromEntries(inputs.map(({ name, node }) => [name, node.value.trim()])));
  return ask({ title, body, action, done, work, before: document.activeElement, first: inputs[0]?.node }).finally(() => { isAsking = false; });
}

// It stays, with the error, where `work` fails. With a `first` field it is a form.
function ask({ title, body, action, done, work, before, first }) {
  return new Promise(resolve => {
    const id = freshId();
    const fault = h("div");
    const leave = () => close(null);
    const cancel = h("button", { onclick: leave }, "Cancel");
    const act = h("button", { type: first && "submit", class: first ? "main" : "danger main" }, action);
    const inside = h(first ? "form" : "div", {}, h("h2", { id }, title), body, fault, bar(cancel, act));
    const dialog = h("dialog", { class: first && "wide", "aria-labelledby": id }, inside);
    const close = outcome => {
      removeEventListener("hashchange", leave);
      dialog.remove();
      before?.focus?.();
      resolve(outcome);
    };
    const go = async event => {
      event.preventDefault();
      act.disabled = true;
      try {
        const outcome = await work();
        close(outcome);
        if (done) say(done(outcome));
      } catch (error) {
        act.disabled = false;
        put(fault, errorNote(error));
      }
    };
    dialog.addEventListener("cancel", event => { event.preventDefault(); leave(); });
    if (first) inside.addEventListener("submit", go);
    else act.addEventListener("click", go);
    // Going back takes the question away with the view that asked it.
    addEventListener("hashchange", leave);
    document.body.append(dialog);
    dialog.showModal();
    (first ?? cancel).focus();
  });
}

function input({ kind = "text", value = "", choices = [], hint, required, maxlength, placeholder }) {
  const id = freshId();
  const shared = { id, required, maxlength, placeholder, "aria-describedby": hint && `${id}-hint`, autocomplete: "off" };
  if (kind === "choice") return h("select", shared, choices.map(([choice, text]) => h("option", { value: choice, selected: choice === value }, text)));
  if (kind !== "area") return h("input", { ...shared, type: "text", value, spellcheck: "false" });
  const node = h("textarea", { ...shared, rows: 10 });
  node.value = value;
  return node;
}

// What was done, for some seconds, with a way to take it back.
export function toast(text, label, work) {
  const shown = h("div", { class: "toast" }, h("span", {}, text), label && h("button", { onclick: async event => {
    event.currentTarget.disabled = true;
    try {
      await work();
      shown.remove();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      put(shown, h("span", {}, error.message));
    }
  } }, label), h("button", { class: "link", "aria-label": "Dismiss", onclick: () => shown.remove() }, "×"));
  document.getElementById("toasts").replaceChildren(shown);
  setTimeout(() => shown.remove(), 15000);
}

// A command with a button that copies it.
export function command(text) {
  const button = h("button", { "aria-label": `Copy ${text}`, onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      put(button, "Copied");
      say("Copied");
    } catch {
      getSelection().selectAllChildren(code);
      put(button, "Selected");
    }
    setTimeout(() => put(button, "Copy"), 2000);
  } }, "Copy");
  const code = h("code", {}, text);
  return h("div", { class: "command" }, code, button);
}
