// Charts as SVG of our own: a few rectangles and lines need no library.

import { counted, dated, h, ms, s, table, whole } from "./dom.js";

// Drawn in the size in which it is shown, or nearly, so that its text is legible on a narrow screen too.
const WIDTH = matchMedia("(max-width: 700px)").matches ? 330 : 560;
const HEIGHT = 180;
const LEFT = 46;
const BOTTOM = 22;
const TOP = 8;
const SPAN = WIDTH - LEFT - 4;
const RISE = HEIGHT - TOP - BOTTOM;

function ceiling(top) {
  if (top <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(top));
  return [1, 2, 2.5, 5, 10].map(each => each * size).find(each => each >= top);
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

function axes(buckets, top, format, isLong) {
  const steps = [0, top / 2, top];
  const label = isLong ? DAY : CLOCK;
  const marks = [0, Math.floor((buckets.length - 1) / 2), buckets.length - 1];
  const places = [["start", LEFT], ["middle", LEFT + SPAN / 2], ["end", LEFT + SPAN]];
  return [
    steps.map(value => {
      const y = TOP + RISE * (1 - value / top);
      return [s("line", { class: "rule", x1: LEFT, x2: LEFT + SPAN, y1: y, y2: y }), s("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, format(value))];
    }),
    marks.map((index, at) => s("text", { x: places[at][1], y: HEIGHT - 5, "text-anchor": places[at][0] }, label.format(new Date(buckets[index].start)))),
  ];
}

// A hover says what a slot of time has; the table below the chart says the same to everyone.
function slots(buckets, says) {
  const width = SPAN / buckets.length;
  return buckets.map((bucket, at) => s("rect", { class: "slot", x: LEFT + at * width, y: TOP, width, height: RISE }, s("title", {}, says(bucket))));
}

function frame(label, ...children) {
  return s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, children);
}

export function searchesChart(buckets, isLong) {
  const top = ceiling(Math.max(...buckets.map(bucket => bucket.queries)));
  const width = SPAN / buckets.length;
  const bars = buckets.filter(bucket => bucket.queries).map(bucket => {
    const height = RISE * bucket.queries / top;
    const fallback = RISE * bucket.fallbacks / top;
    const x = LEFT + buckets.indexOf(bucket) * width + width * .12;
    return [
      s("rect", { class: "fill1", x, width: width * .76, y: TOP + RISE - height, height }),
      bucket.fallbacks > 0 && s("rect", { class: "fill2", x, width: width * .76, y: TOP + RISE - fallback, height: fallback }),
    ];
  });
  const total = buckets.reduce((sum, bucket) => sum + bucket.queries, 0);
  const says = bucket => `${dated(bucket.start)}: ${whole(bucket.queries)} searches, ${counted(bucket.fallbacks, "fallback")}`;
  const format = value => (Number.isInteger(value) ? whole(value) : "");
  return frame(`Searches over time: ${whole(total)} in all, at most ${whole(Math.max(...buckets.map(bucket => bucket.queries)))} in one slot`, axes(buckets, top, format, isLong), bars, slots(buckets, says));
}

export function latencyChart(buckets, isLong) {
  const top = ceiling(Math.max(...buckets.map(bucket => bucket.p95Latency)));
  const width = SPAN / buckets.length;
  const place = (at, value) => `${(LEFT + (at + .5) * width).toFixed(1)} ${(TOP + RISE * (1 - value / top)).toFixed(1)}`;
  const says = bucket => `${dated(bucket.start)}: ${bucket.queries ? `average ${ms(bucket.avgLatency)}, p95 ${ms(bucket.p95Latency)}` : "no searches"}`;
  const lines = [["k1", "p95Latency"], ["k2", "avgLatency"]].map(([name, key]) => runs(buckets).map(run => run.length === 1
    ? s("circle", { class: name === "k1" ? "fill1" : "fill2", r: 3, cx: LEFT + (run[0] + .5) * width, cy: TOP + RISE * (1 - buckets[run[0]][key] / top) })
    : s("path", { class: `line ${name}`, d: `M${run.map(at => place(at, buckets[at][key])).join("L")}` })));
  const asked = buckets.filter(bucket => bucket.queries);
  const label = asked.length ? `Latency over time: p95 between ${ms(Math.min(...asked.map(each => each.p95Latency)))} and ${ms(Math.max(...asked.map(each => each.p95Latency)))}` : "Latency over time: no searches";
  return frame(label, axes(buckets, top, value => (value ? ms(value) : "0"), isLong), lines, slots(buckets, says));
}

// Slots without searches have no latency: a line ends before them and begins again after them.
function runs(buckets) {
  const found = [];
  buckets.forEach((bucket, at) => {
    if (!bucket.queries) return;
    if (at > 0 && buckets[at - 1].queries) found.at(-1).push(at);
    else found.push([at]);
  });
  return found;
}

export function legend(pairs) {
  return h("p", { class: "legend" }, pairs.map(([kind, text]) => h("span", {}, s("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" },
    kind.startsWith("fill") ? s("rect", { class: kind, x: 5, width: 12, height: 8, rx: 2 }) : s("line", { class: kind, x1: 0, x2: 22, y1: 4, y2: 4 })), text)));
}

export function timelineTable(buckets) {
  const asked = buckets.filter(bucket => bucket.queries).reverse();
  return table("Searches and latency over time", [
    { name: "From", of: bucket => dated(bucket.start), head: true },
    { name: "Searches", of: bucket => whole(bucket.queries), num: true },
    { name: "Fallbacks", of: bucket => whole(bucket.fallbacks), num: true },
    { name: "Average", of: bucket => ms(bucket.avgLatency), num: true },
    { name: "p95", of: bucket => ms(bucket.p95Latency), num: true },
  ], asked);
}

// How a total is shared out, largest first.
export function shares(pairs, kind = "fill1") {
  const total = pairs.reduce((sum, [, count]) => sum + count, 0) || 1;
  return h("ul", { class: "shares" }, pairs.map(([name, count, fill]) => h("li", {},
    h("span", {}, name), h("span", { class: "num" }, `${whole(count)} `, h("span", { class: "dim" }, `${(count * 100 / total).toFixed(1)} %`)),
    meter(count / total, fill ?? kind))));
}

export function meter(share, fill = "fill1") {
  return s("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" }, s("rect", { class: fill, width: Math.max(0, Math.min(1, share)) * 100, height: 6 }));
}
