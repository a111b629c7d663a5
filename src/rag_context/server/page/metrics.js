// What Prometheus reads, for people: each metric with its help and its values, and the words that narrow the list.

import { request } from "./api.js";
import { counted, empty, h, link, put, say, scrolling, table, tag } from "./dom.js";

export async function metrics(context, heading) {
  const found = parsed(await request("/metrics", { raw: true, signal: context.signal }));
  const filter = h("input", { type: "search", id: "metric-filter", autocomplete: "off", spellcheck: "false", value: context.fields.filter });
  const shown = h("div", { class: "box" });
  const draw = () => {
    const wanted = filter.value.trim().toLowerCase();
    const kept = found.filter(each => `${each.name} ${each.help}`.toLowerCase().includes(wanted));
    put(shown, kept.length ? scrolling("Metrics", listed(kept)) : empty("No metric has this in its name or help", "Clear the filter to see all of them."));
    return kept.length;
  };
  filter.addEventListener("input", () => say(counted(draw(), "metric")));
  draw();
  return [
    h("div", { class: "bar" }, heading, h("div", { class: "end bar" }, h("button", { type: "button", onclick: context.reload }, "Read again"))),
    h("div", { class: "box field" }, h("label", { for: "metric-filter" }, "Name or help"), filter, h("p", { class: "hint" }, "As Prometheus reads them at ", h("a", { href: "/metrics" }, "/metrics"), ". Counters count since the start of this process; ", h("a", { href: link("overview") }, "the overview"), " has the searches of all processes.")),
    shown,
  ];
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;

export function parsed(text) {
  const families = new Map();
  let current = null;
  for (const line of text.split("\n")) {
    const [sign, word, name, ...rest] = line.split(" ");
    if (sign === "#" && word === "HELP") families.set(name, current = { name, help: rest.join(" "), type: "", samples: [] });
    else if (sign === "#" && word === "TYPE") current.type = rest[0];
    else if (current && LINE.test(line)) {
      const [, sample, labels = "", value] = LINE.exec(line);
      if (!sample.endsWith("_created")) current.samples.push({ sample, labels, value: Number(value) });
    }
  }
  return [...families.values()].filter(each => each.samples.length);
}

function listed(families) {
  return table("Metrics", [
    { name: "Metric", head: true, of: each => h("code", {}, each.name), cell: "wide" },
    { name: "Kind", of: each => tag(each.type) },
    { name: "What it says", of: each => each.help, cell: "wide" },
    { name: "Value", of: values, cell: "wide" },
  ], families);
}

function values({ name, type, samples }) {
  if (type === "histogram") {
    const sum = ending => samples.filter(each => each.sample === `${name}${ending}`).reduce((total, each) => total + each.value, 0);
    const count = sum("_count");
    return count ? `${counted(count, "observation")}, mean ${(sum("_sum") / count).toPrecision(3)}` : "no observation";
  }
  if (samples.length === 1 && !samples[0].labels) return shown(samples[0].value);
  return h("ul", {}, samples.map(each => h("li", {}, h("code", {}, each.labels || each.sample), ` ${shown(each.value)}`)));
}

const shown = value => (Number.isInteger(value) ? value.toLocaleString("en") : value.toPrecision(4));
