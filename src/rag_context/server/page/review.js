// What in the memory probably needs a decision, and the calls that decide.

import { errorNote, memory, tool } from "./api.js";
import { toast } from "./dialogs.js";
import { bar, counted, empty, h, link, put, tag, when } from "./dom.js";

const KINDS = { newerValue: "newer value", duplicate: "twice", staleReference: "outdated reference", neverFound: "never found", expiring: "expires soon" };
const DO = { merge: "Keep the later one", forget: "Forget", keep: "Leave as it is", pin: "Pin" };

export async function review(context, heading) {
  const list = h("div", { class: "stack" });
  const more = h("button", { onclick: () => take() }, "Look further");
  let cursor;
  const take = async () => {
    const page = await memory("review", { cursor }, context);
    cursor = page.nextCursor;
    more.hidden = !cursor;
    list.append(...page.suggestions.map(card));
    if (!list.children.length) put(list, h("div", { class: "box" }, empty("Nothing needs a decision", `${counted(page.examined, "document")} examined`)));
  };
  await take();
  return [bar(heading, h("span", { class: "dim" }, "Nothing happens by itself")), list, h("div", {}, more)];
}

function card({ kind, detail, documents, calls }) {
  const fault = h("div");
  const box = h("article", { class: "box result" }, h("p", {}, tag(KINDS[kind] ?? kind, "warn"), ` ${detail}`),
    documents.map(each => h("div", { class: "passage" }, h("a", { class: "plain", href: link("documents", {}, each.documentId) }, each.title), h("p", { class: "excerpt" }, each.excerpt), h("p", { class: "meta" }, each.source, when(each.occurredAt)))),
    bar(calls.filter(each => DO[each.action]).map(({ action, tool: name, arguments: fields }) => h("button", { onclick: async () => {
      try {
        const { id } = await tool(name, fields);
        box.remove();
        toast("Done.", id && "Undo", () => memory("undo", { id }));
      } catch (error) {
        put(fault, errorNote(error));
      }
    } }, DO[action]))), fault);
  return box;
}
