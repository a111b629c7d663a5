// Every change of the memory, newest first, and a way to take it back.

import { errorNote, memory } from "./api.js";
import { toast } from "./dialogs.js";
import { bar, counted, empty, h, link, put, say, tag, when } from "./dom.js";

const PAGE = 50;
const DONE = { index: "added", replace: "changed", correct: "corrected", pin: "pinned or unpinned", delete: "deleted", forget: "forgot", expire: "let expire", purge: "purged", undo: "took back", restore: "restored" };

export async function changes(context, heading) {
  const list = h("ul", { class: "rows cards" });
  const more = h("button", {}, "Earlier changes");
  const fault = h("div");
  let before;
  const take = async () => {
    const page = await memory("log", { limit: PAGE, before }, context);
    before = page.nextBefore;
    more.hidden = !before;
    list.append(...page.entries.map(each => row(each, context, fault)));
    return page.entries.length;
  };
  more.addEventListener("click", async () => {
    const length = list.children.length;
    say(counted(await take(), "change"));
    list.children[length]?.querySelector("a, button")?.focus();
  });
  await take();
  return [
    bar(heading, h("span", { class: "dim" }, "Who changed what; what is forgotten stays in the trash for 30 days")),
    fault, h("div", { class: "box" }, list.children.length ? [list, h("div", { class: "bar gap" }, more)] : empty("Nothing was changed yet", "What agents and people store, correct and forget is listed here.")),
  ];
}

function row(each, context, fault) {
  const place = each.moves.map(move => move.after).find(after => after && !after.shelf);
  const name = each.source ?? (each.count === 1 ? "a document" : counted(each.count, "document"));
  return h("li", {}, h("div", { class: "grow" },
    h("span", {}, h("strong", {}, each.by), ` ${DONE[each.operation] ?? each.operation} `, each.undoes ? `change ${each.undoes}` : place ? h("a", { href: link("documents", {}, place.documentId) }, name) : name, each.count > 1 && each.source && ` and ${counted(each.count - 1, "more document")}`),
    h("span", { class: "meta" }, `Change ${each.id}`, each.reason, ["forget", "delete", "purge"].includes(each.operation) && tag(each.operation, "bad"))),
  h("span", { class: "meta num" }, when(each.at)),
  h("span", { class: "act" }, each.undoable && h("button", { "aria-label": `Undo change ${each.id}`, onclick: async event => {
    event.currentTarget.disabled = true;
    try {
      await memory("undo", { id: each.id });
      toast(`Change ${each.id} is taken back.`);
      context.reload();
    } catch (error) {
      put(fault, errorNote(error));
    }
  } }, "Undo")));
}
