// Questions before anything is changed. The focus returns to where it was.

import { ApiError, errorNote } from "./api.js";
import { freshId, h, put, say } from "./dom.js";

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

function ask({ title, body, action, done, work, before }) {
  return new Promise(resolve => {
    const id = freshId();
    const fault = h("div");
    const cancel = h("button", { type: "button", onclick: () => close(null) }, "Cancel");
    const act = h("button", { type: "button", class: "danger main" }, action);
    const dialog = h("dialog", { "aria-labelledby": id }, h("div", {}, h("h2", { id }, title), body, fault, h("div", { class: "bar" }, cancel, act)));
    const leave = () => close(null);
    const close = outcome => {
      removeEventListener("hashchange", leave);
      dialog.remove();
      before?.focus?.();
      resolve(outcome);
    };
    dialog.addEventListener("cancel", event => { event.preventDefault(); close(null); });
    act.addEventListener("click", async () => {
      act.disabled = true;
      try {
        const outcome = await work();
        close(outcome);
        say(done(outcome));
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        act.disabled = false;
        put(fault, errorNote(error));
      }
    });
    // Going back in the history takes the question away with the view that asked it.
    addEventListener("hashchange", leave);
    document.body.append(dialog);
    dialog.showModal();
    cancel.focus();
  });
}
