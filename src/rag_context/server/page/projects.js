// Projects: which are stored, whether they are followed, their documents, and forgetting one.

import { errorNote, tool } from "./api.js";
import { confirmed } from "./dialogs.js";
import { bar, counted, empty, facts, h, link, note, put, scrolling, table, tag, when, whole } from "./dom.js";

export async function projects(context, heading) {
  const { projects: found } = await tool("list_projects", {}, context);
  if (!found.length) {
    return [heading, h("div", { class: "box" }, empty("No project is stored", h("span", {}, "In a repository with documentation, ", h("code", {}, "rag-context project activate"), " indexes its Markdown files and follows them.")))];
  }
  return [heading, h("p", { class: "dim" }, "A project is a repository's documentation on one branch. Its index follows the files."), found.map(each => card(each, context))];
}

function card(project, context) {
  const named = { project: project.project_name, branch: project.branch_name, pathHash: project.path_hash };
  const types = h("div");
  const fault = h("div");
  return h("section", { class: "box" },
    bar(h("h2", {}, project.project_name), tag(`branch ${project.branch_name}`), condition(project)),
    facts([["Documents", whole(project.documents)], ["Folder", project.path ?? "no files known"], ["Last used", project.last_used ? when(project.last_used) : "not known"],
      ["Removed after", project.removed_after && [when(project.removed_after), " unless its files come back or it is used"]]]),
    project.warnings.length > 0 && note("warn", project.warnings.map(each => h("p", {}, each))),
    h("div", { class: "bar gap" },
      h("a", { class: "button", href: link("documents", named), "aria-label": `Documents of ${project.project_name}` }, "Documents"),
      h("a", { class: "button", href: link("search", named), "aria-label": `Search ${project.project_name}` }, "Search"),
      h("button", { "aria-label": `Document types of ${project.project_name}`, onclick: event => showTypes(types, named, event.currentTarget) }, "Document types"),
      h("button", { class: "danger end", "aria-label": `Forget ${project.project_name}`, onclick: () => forget(project, fault, context) }, "Forget")),
    types, fault);
}

function condition(project) {
  if (project.exists === false) return tag("its files are gone", "bad");
  return project.followed ? tag("followed", "good") : tag("not followed");
}

async function showTypes(box, { project, branch, pathHash }, button) {
  button.disabled = true;
  try {
    const answer = await tool("list_doc_types", { project, branch, path_hash: pathHash });
    put(box, scrolling("Document types", table("Document types", [
      { name: "Type", of: each => each.name, head: true },
      { name: "Documents", of: each => whole(each.doc_count), num: true },
      { name: "Folder", of: each => h("code", {}, each.folder) },
      { name: "What it is for", of: each => each.description, cell: "wide" },
    ], answer.doc_types)));
  } catch (error) {
    button.disabled = false;
    put(box, errorNote(error));
  }
}

async function forget(project, fault, context) {
  const which = { project_name: project.project_name, branch_name: project.branch_name, path_hash: project.path_hash };
  put(fault);
  try {
    const question = preview => {
      const many = counted(preview.deleted_count, "document");
      const body = [h("p", {}, `Out of the index go ${many} in ${counted(preview.deleted_chunks, "chunk")} of branch ${project.branch_name}.`), h("p", {}, "The files stay as they are; activating the project again indexes them again.")];
      return { title: `Forget ${project.project_name}?`, body, action: `Forget ${many}` };
    };
    const outcome = await confirmed({
      preview: () => tool("delete_documents", { ...which, dry_run: true }),
      question,
      work: () => tool("delete_documents", which),
      done: result => `${counted(result.deleted_count, "document")} removed from the index`,
    });
    if (outcome) context.reload();
  } catch (error) {
    put(fault, errorNote(error, () => forget(project, fault, context)));
  }
}
