// Filters with counts: each value is a link that narrows the view to it, or takes it away again.

import { counted, h, link, whole } from "./dom.js";
import { kindIcon } from "./icons.js";

const SHOWN = 7;
export const PROJECT = "project:";
export const KINDS = { chat: "Conversations", decision: "Decisions", code: "Code", documentation: "Documentation" };
export const kindName = kind => KINDS[kind] ?? kind;
// One of them.
export const oneOf = kind => kindName(kind).replace(/s$/, "");

// `project:app-1a2b3c4d` is shown as `app`.
export const projectName = tag => tag.slice(PROJECT.length).replace(/-[0-9a-f]{8}$/, "");

const tagsOf = fields => (fields.tags ?? "").split(",").filter(Boolean);

export const tenantOf = ({ project, branch, pathHash }) => ({ project, branch, pathHash });

// The filter of an address as operations take it.
export function filterOf({ contentType, sessionId, source, since, until, minTrust, agent, ...fields }) {
  const tags = tagsOf(fields);
  return { contentType, sessionId, source, since, until, minTrust, ...tenantOf(fields), agents: agent && [agent], tags: tags.length ? tags : undefined };
}

export const isNarrowed = fields => Object.values(filterOf(fields)).some(Boolean);

function midnight(daysAgo) {
  const date = new Date();
  date.setUTCHours(0, 0, 0, 0);
  return new Date(date - daysAgo * 86400000).toISOString();
}

// Whose words a text is, the most trusted first; a filter lets one and those before it through.
export const ORIGINS = { owner: "you", agent: "agents", teammate: "teammates", document: "documents", web: "web pages" };

const SPANS = [["Today", 0], ["Last 7 days", 6], ["Last 30 days", 29], ["Last year", 364]];

export function facets(view, fields, counts, sessionName) {
  const to = changed => link(view, { ...fields, cursor: undefined, ...changed });
  const chosen = tagsOf(fields);
  const toggled = tag => (chosen.includes(tag) ? chosen.filter(each => each !== tag) : [...chosen, tag]).join(",");
  const ofTags = Object.entries(counts.tags);
  const groups = [
    ["Kind", Object.entries(counts.contentTypes).map(([kind, count]) => [[kindIcon(kind), kindName(kind)], count, fields.contentType === kind, to({ contentType: fields.contentType === kind ? "" : kind })])],
    ["Time", SPANS.map(([title, days]) => {
      const since = midnight(days);
      const count = Object.entries(counts.days).filter(([day]) => day >= since.slice(0, 10)).reduce((sum, [, each]) => sum + each, 0);
      return [title, count, fields.since === since, to({ since: fields.since === since ? "" : since, until: "" })];
    }).filter(([, count, isChosen]) => count > 0 || isChosen)],
    ["Project", ofTags.filter(([tag]) => tag.startsWith(PROJECT)).map(([tag, count]) => [projectName(tag), count, chosen.includes(tag), to({ tags: toggled(tag) })])],
    ["Tag", ofTags.filter(([tag]) => !tag.startsWith(PROJECT)).map(([tag, count]) => [tag, count, chosen.includes(tag), to({ tags: toggled(tag) })])],
    ["Agent", Object.entries(counts.agents).map(([agent, count]) => [agent, count, fields.agent === agent, to({ agent: fields.agent === agent ? "" : agent })])],
    ["Words of", Object.keys(ORIGINS).filter(name => counts.origins[name] || fields.minTrust === name).map((name, at, named) => [at ? `or ${ORIGINS[name]}` : ORIGINS[name], named.slice(0, at + 1).reduce((sum, each) => sum + (counts.origins[each] ?? 0), 0), fields.minTrust === name, to({ minTrust: fields.minTrust === name ? "" : name })])],
    ["Session", counts.sessions.map(each => [sessionName(each), each.count, fields.sessionId === each.sessionId, to({ sessionId: fields.sessionId === each.sessionId ? "" : each.sessionId })])],
  ].filter(([, values]) => values.length > 0);
  const used = groups.flatMap(([, values]) => values).filter(([, , isChosen]) => isChosen).length;
  const body = [
    isNarrowed(fields) ? h("a", { class: "button small", href: link(view, { query: fields.query }) }, "Clear all filters") : null,
    groups.map(([title, values]) => group(title, values)),
  ];
  const isNarrow = matchMedia("(max-width: 900px)").matches;
  return h("aside", { class: "facets", "aria-label": "Filters" }, isNarrow ? h("details", { open: used > 0 && !fields.query }, h("summary", {}, used ? `Filters (${used} set)` : "Filters"), body) : body);
}

function group(title, values) {
  const rows = values.map(([name, count, isChosen, href]) => h("li", {}, h("a", { href, "aria-current": isChosen ? "true" : undefined }, h("span", { class: "cut" }, name), h("span", { class: "num dim" }, whole(count)))));
  const later = rows.slice(SHOWN);
  return h("section", {}, h("h2", {}, title), h("ul", {}, rows.slice(0, SHOWN)), later.length > 0 && h("details", {}, h("summary", {}, counted(later.length, "more", "more")), h("ul", {}, later)));
}
