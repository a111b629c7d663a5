// Strokes on a grid of 16, in the colour of the text beside them.

import { s } from "./dom.js";

const PATHS = {
  home: "M2.5 7 8 2.5 13.5 7v6.5h-4V9.5h-3v4h-4z",
  chat: "M2.5 3h11v7.5H8L5 13.5v-3H2.5z",
  doc: "M4 1.8h5.2L12.5 5v9.2H4zM9 2v3.2h3.3",
  eye: "M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8zM8 6.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6z",
  undo: "M5.5 2.5 2.5 5.5l3 3M2.5 5.5h7a4 4 0 0 1 0 8H6",
  stack: "M8 2 14 5 8 8 2 5zM2 8l6 3 6-3M2 11l6 3 6-3",
  folder: "M1.8 3.5h4.4l1.5 2h6.5v7.5H1.8z",
  gauge: "M2 12.5a6 6 0 1 1 12 0M8 12.5 10.5 7",
  code: "M5.5 4 1.8 8l3.7 4M10.5 4l3.7 4-3.7 4",
  flag: "M3.5 14V2.5h8.5L10.2 5.4 12 8.3H3.5",
  pin: "M5.5 2h5M6.5 2v4L4 9h8L9.5 6V2M8 9v5",
  plus: "M8 3v10M3 8h10",
  check: "M3 8.5 6.5 12 13 4.5",
};

export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: PATHS[name] ?? PATHS.doc }));
}

const KINDS = { chat: "chat", decision: "flag", code: "code", documentation: "doc" };
export const kindIcon = kind => icon(KINDS[kind] ?? "doc");
