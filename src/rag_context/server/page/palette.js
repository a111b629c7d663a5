// Search from anywhere: a question, or the name of a view or of a session.

import { memory } from "./api.js";
import { freshId, h, link, put } from "./dom.js";
import { icon } from "./icons.js";
import { sessionName } from "./sessions.js";

let isOpen = false;
let known = [];

export function openPalette(views) {
  if (isOpen || document.querySelector("dialog[open]")) return;
  isOpen = true;
  const before = document.activeElement;
  const listId = freshId();
  const input = h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": listId, "aria-autocomplete": "list", "aria-label": "Search or go to", placeholder: "Ask the memory, or go to a view or a session", maxlength: 1000, autocomplete: "off", spellcheck: "false" });
  const list = h("ul", { id: listId, role: "listbox", "aria-label": "Suggestions" });
  const dialog = h("dialog", { class: "palette", "aria-label": "Search" }, h("div", {}, input, list));
  let at = 0;
  const close = () => {
    isOpen = false;
    dialog.remove();
    before?.focus?.();
  };
  const go = target => {
    close();
    if (location.hash === target) dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = target;
  };
  const draw = () => {
    const text = input.value.trim();
    const wanted = text.toLowerCase();
    const found = [
      ...(text ? [["doc", `Search for “${text}”`, link("search", { query: text })]] : []),
      ...Object.entries(views).filter(([, view]) => view[2] && view[1].toLowerCase().includes(wanted)).map(([name, [, title, sign]]) => [sign, title, link(name)]),
      ...known.filter(each => wanted && `${each.sessionId} ${each.agents.join(" ")}`.toLowerCase().includes(wanted)).slice(0, 6).map(each => ["chat", sessionName(each), link("sessions", {}, each.sessionId)]),
    ].slice(0, 10);
    at = Math.min(at, Math.max(found.length - 1, 0));
    put(list, found.map(([sign, title, target], number) => h("li", { id: `${listId}-${number}`, role: "option", "aria-selected": String(number === at), onclick: () => go(target), "data-target-hash": target }, icon(sign), h("span", { class: "cut" }, title))));
    input.setAttribute("aria-activedescendant", found.length ? `${listId}-${at}` : "");
  };
  input.addEventListener("input", () => { at = 0; draw(); });
  input.addEventListener("keydown", event => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      at = (at + step + list.children.length) % (list.children.length || 1);
      draw();
    } else if (event.key === "Enter") {
      event.preventDefault();
      const target = list.children[at]?.dataset.targetHash;
      if (target) go(target);
    }
  });
  dialog.addEventListener("cancel", event => { event.preventDefault(); close(); });
  dialog.addEventListener("click", event => { if (event.target === dialog) close(); });
  document.body.append(dialog);
  dialog.showModal();
  draw();
  input.focus();
  memory("list", { limit: 1, facets: true }).then(page => { known = page.facets.sessions; if (isOpen) draw(); }, () => {});
}
