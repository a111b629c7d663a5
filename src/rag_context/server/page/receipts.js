// What agents were shown without asking: when, which client in which session, why, for how many tokens; and what was withheld.

import { tool } from "./api.js";
import { counted, empty, h, link, put, say, scrolling, table, tag, when, whole } from "./dom.js";

const MOMENTS = { "session-start": "start of a session", prompt: "prompt", action: "before an action" };

export async function receipts(context, heading) {
  const { session, withheld } = context.fields;
  const { injections, tokens } = await tool("rag_context_injections", { sessionId: session, shownOnly: withheld ? undefined : true, limit: 200 }, { signal: context.signal });
  const box = h("input", { type: "checkbox", id: "withheld", checked: Boolean(withheld) });
  box.addEventListener("change", () => { location.hash = link("receipts", { session, withheld: box.checked ? 1 : "" }); });
  const shown = injections.filter(each => each.shown);
  const clients = [...new Set(shown.map(each => each.client))];
  const list = h("div", { class: "box" });
  put(list, injections.length ? scrolling("Shown to agents", listed(injections, withheld)) : empty("Agents were shown nothing", h("span", {}, "Connect one with ", h("code", {}, "rag-context install CLIENT"), ": its hooks bring what was decided into its sessions.")));
  say(counted(injections.length, "passage"));
  return [
    h("div", { class: "bar" }, heading, h("div", { class: "end bar" }, h("button", { type: "button", onclick: context.reload }, "Read again"))),
    h("div", { class: "box bar" },
      h("span", {}, `${counted(shown.length, "passage")}, ${counted(tokens, "token")}${clients.length ? `, to ${clients.join(", ")}` : ""}`),
      session && h("a", { class: "button", href: link("receipts", { withheld }) }, "All sessions"),
      h("label", { class: "end" }, box, " Also what was withheld")),
    list,
  ];
}

function listed(injections, withheld) {
  return table("Shown to agents", [
    { name: "When", of: each => when(each.at) },
    { name: "Client", of: each => each.client },
    { name: "Session", of: each => h("a", { href: link("receipts", { session: each.sessionId, withheld }) }, each.sessionId), cell: "wide" },
    { name: "Moment", of: each => [MOMENTS[each.event] ?? each.event, each.subject && h("code", {}, ` ${each.subject}`)] },
    { name: "Passage", head: true, of: passage, cell: "wide" },
    { name: "Why", of: each => [each.reason && tag(each.reason, "warn"), scores(each.scores)], cell: "wide" },
    { name: "Tokens", num: true, of: each => (each.shown ? whole(each.tokens) : "") },
  ], injections);
}

function passage({ documentId, title, content }) {
  if (!documentId) return "none";
  if (title === undefined || title === null) return "deleted since";
  return h("a", { href: link("documents", {}, documentId), title: content }, title);
}

function scores(values) {
  const known = ["relevance", "coverage", "strength"].filter(name => values[name] !== undefined);
  return known.map(name => `${name} ${values[name].toFixed(2)}`).join(", ");
}
