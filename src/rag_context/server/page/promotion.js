// The promotion level of a project's document.

import { errorNote, tool } from "./api.js";
import { h, note, put, say } from "./dom.js";

const LEVELS = [["standard", "ranked by relevance"], ["important", "ranked a little higher"], ["critical", "at the beginning of every answer"]];

export function promotion({ metadata }, { project, branch, pathHash }) {
  const outcome = h("div");
  const select = h("select", { id: "level" }, LEVELS.map(([level, means]) => h("option", { value: level, selected: level === metadata.promotion_level }, `${level}: ${means}`)));
  const send = async event => {
    event.preventDefault();
    const request = { document_path: metadata.path, promotion_level: select.value, project, branch, path_hash: pathHash };
    try {
      const done = await tool("update_promotion_level", request);
      put(outcome, note("good", h("p", {}, `It was ${done.previous_level} and is ${done.new_level} now; the file says so too.`)));
      say(`The promotion level is ${done.new_level}`);
    } catch (error) {
      put(outcome, errorNote(error));
    }
  };
  return h("section", { class: "box" }, h("h2", {}, "Promotion"),
    h("form", { class: "field narrow", onsubmit: send }, h("label", { for: "level" }, "Level"), select,
      h("p", { class: "hint" }, "Writes promotion_level into the file's front matter and changes nothing else in it."),
      h("div", {}, h("button", { type: "submit" }, "Set the level"))), outcome);
}
