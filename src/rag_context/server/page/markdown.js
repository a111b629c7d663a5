// Markdown as elements. The parser's tokens become elements one by one: no HTML is made or read, so text that looks like
// HTML stays text. Links go to http, https and mail addresses only; pictures are named and not loaded.

import { lexer } from "./marked.js";
import { colour } from "./code.js";
import { h, visible } from "./dom.js";

const MOST_CHARS = 60000;
const SAFE = /^(https?:\/\/|mailto:)/i;

// `words` are marked wherever they stand.
// Lines of conversations end where they end, those of documents where the paragraph ends.
export function markdown(text, words = [], breaks = false) {
  if (text.length > MOST_CHARS) return h("pre", { class: "text" }, marked(text, words));
  try {
    return h("div", { class: "md" }, blocks(lexer(text, { gfm: true, breaks }), words));
  } catch {
    return h("pre", { class: "text" }, marked(text, words));
  }
}

function blocks(tokens, words) {
  return tokens.map(token => block(token, words));
}

function block(token, words) {
  switch (token.type) {
    case "space": case "def": return null;
    case "heading": return h("p", { class: `md-h md-h${Math.min(token.depth, 3)}` }, inline(token.tokens, words));
    case "paragraph": return h("p", {}, inline(token.tokens, words));
    case "text": return h("span", {}, token.tokens ? inline(token.tokens, words) : marked(token.text, words));
    case "code": return h("pre", { class: "code" }, colour(token.text, token.lang));
    case "blockquote": return h("blockquote", {}, blocks(token.tokens, words));
    case "list": return h(token.ordered ? "ol" : "ul", { start: token.ordered && token.start !== 1 ? token.start : undefined }, token.items.map(item => h("li", {}, item.task && (item.checked ? "☑ " : "☐ "), blocks(item.tokens.filter(each => each.type !== "checkbox"), words))));
    case "hr": return h("hr");
    case "table": return h("div", { class: "scroll", role: "region", "aria-label": "Table", tabindex: 0 }, h("table", {},
      h("thead", {}, h("tr", {}, token.header.map(cell => h("th", {}, inline(cell.tokens, words))))),
      h("tbody", {}, token.rows.map(row => h("tr", {}, row.map(cell => h("td", {}, inline(cell.tokens, words))))))));
    default: return h("p", {}, marked(token.raw.trimEnd(), words));
  }
}

function inline(tokens = [], words) {
  return tokens.map(token => {
    switch (token.type) {
      case "strong": return h("strong", {}, inline(token.tokens, words));
      case "em": return h("em", {}, inline(token.tokens, words));
      case "del": return h("del", {}, inline(token.tokens, words));
      case "codespan": return h("code", {}, marked(token.text, words));
      case "br": return h("br");
      case "link": return SAFE.test(token.href) ? h("a", { href: token.href, target: "_blank", rel: "noopener noreferrer" }, inline(token.tokens, words)) : inline(token.tokens, words);
      case "image": return h("span", { class: "dim" }, `[picture: ${token.text || token.href}]`);
      case "text": return token.tokens ? inline(token.tokens, words) : marked(token.text, words);
      case "escape": return token.text;
      default: return marked(token.raw, words);
    }
  });
}

const COMMON = new Set("the and for are was were with what when where which who why how did does not you your our from that this have has had can could should would about into than then them they been will its use used".split(" "));

// The beginnings of the words of a question, so that "retried" marks "retry" too.
export function wordsOf(query = "") {
  const found = visible(query).toLowerCase().match(/[\p{L}\p{N}_]{3,}/gu) ?? [];
  return [...new Set(found)].filter(word => !COMMON.has(word)).map(word => (word.length > 5 ? word.slice(0, Math.max(4, word.length - 2)) : word)).slice(0, 12);
}

// A text with the words in it marked.
export function marked(text, words) {
  if (!words.length) return text;
  const parts = String(text).split(new RegExp(`(?<![\\p{L}\\p{N}])((?:${words.map(word => word.replace(/[^\p{L}\p{N}_]/gu, "\\$&")).join("|")})[\\p{L}\\p{N}]*)`, "iu"));
  return parts.map((part, at) => (at % 2 ? h("mark", {}, part) : part));
}
