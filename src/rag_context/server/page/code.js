// Code in colours: comments, strings, numbers, keywords and calls, which look alike in most languages. A parser for each
// language would weigh more than the rest of this page.

import { h } from "./dom.js";

const HASH = new Set("py python sh bash shell zsh console yaml yml toml rb ruby r pl perl dockerfile makefile conf ini tf".split(" "));
const DASH = new Set("sql lua hs ada".split(" "));
const NONE = new Set(["", "txt", "text", "md", "markdown", "log"]);
const MOST_CHARS = 40000;
const STRINGS = '"""[\\s\\S]*?"""|\'\'\'[\\s\\S]*?\'\'\'|"(?:\\\\.|[^"\\\\\\n])*"|\'(?:\\\\.|[^\'\\\\\\n])*\'|`(?:\\\\.|[^`\\\\])*`';
const KEYWORDS = new Set("and as async await begin bool break case catch char class const continue def default delete do done double elif else end enum except export extends false fi finally float fn for foreach from func function go if impl import in int interface is lambda let long match mod mut namespace new nil none not null or package pass private protected pub public raise return self static string struct super switch then this throw true try type typeof use using val var void when where while with yield select insert update into values join on group order by limit create table None True False".split(" "));

export function colour(text, name = "") {
  const language = name.trim().split(/[\s,{]/)[0].toLowerCase();
  if (NONE.has(language) || text.length > MOST_CHARS) return h("code", {}, text);
  const comment = HASH.has(language) ? "(?<![\\w$&])#[^\\n]*" : DASH.has(language) ? "--[^\\n]*" : "\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?\\*\\/";
  const parts = new RegExp(`(?<comment>${comment})|(?<string>${STRINGS})|(?<number>\\b\\d[\\w.]*)|(?<word>[A-Za-z_]\\w*)(?<call>(?=\\())?`, "g");
  const shown = [];
  let end = 0;
  for (const found of text.matchAll(parts)) {
    const { comment: isComment, string, number, word, call } = found.groups;
    const kind = isComment ? "comment" : string ? "string" : number ? "number" : KEYWORDS.has(DASH.has(language) ? word.toLowerCase() : word) ? "keyword" : call !== undefined ? "call" : null;
    if (!kind) continue;
    shown.push(text.slice(end, found.index), h("span", { class: `t-${kind}` }, found[0]));
    end = found.index + found[0].length;
  }
  return h("code", {}, shown, text.slice(end));
}

export const languageOf = source => source.split(/[?#]/)[0].split(".").pop() ?? "";
