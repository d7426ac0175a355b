/** Code with its words coloured: one small tokenizer for the languages that look alike. Linear, and never markup. */
import { plain } from "./format.js";
import { html } from "./html.js";

const WORDS = new Set(
  ("and as assert async await break case catch class const continue def default del do elif else enum except export extends " +
    "false False final finally fn for from func function global if impl import in instanceof interface is lambda let match mod " +
    "mut new nil None not null or package pass private pub public raise return self static struct super switch this throw trait " +
    "true True try type typeof use var void where while with yield SELECT FROM WHERE INSERT UPDATE DELETE INTO VALUES JOIN ON " +
    "echo then fi done export").split(" "),
);
const HASH = new Set(["", "python", "py", "sh", "bash", "shell", "console", "toml", "yaml", "yml", "ruby", "r", "make", "dockerfile"]);
const MOST = 40_000; // characters: more than that is shown plain

/** Code as nodes. @param {string} text @param {string} [language] */
export function highlighted(text, language = "") {
  if (text.length > MOST) return plain(text);
  return tokens(text, language.toLowerCase()).map(([kind, word]) => (kind ? html`<span class="t-${kind}">${plain(word)}</span>` : plain(word)));
}

/** @param {string} text @param {string} language @returns {Array<[string, string]>} kind (com, str, num, kw, fn or nothing) and text */
export function tokens(text, language) {
  const comment = HASH.has(language) ? "#[^\\n]*" : language === "sql" ? "--[^\\n]*" : "//[^\\n]*|/\\*[^]*?\\*/";
  const pattern = new RegExp(`(${comment})|("(?:[^"\\\\\\n]|\\\\.)*"|'(?:[^'\\\\\\n]|\\\\.)*'|\`[^\`]*\`)|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)(\\s{0,4}\\()?`, "g");
  /** @type {Array<[string, string]>} */
  const found = [];
  let last = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > last) found.push(["", text.slice(last, match.index)]);
    last = match.index + match[0].length;
    if (match[1]) found.push(["com", match[1]]);
    else if (match[2]) found.push(["str", match[2]]);
    else if (match[3]) found.push(["num", match[3]]);
    else {
      found.push([WORDS.has(match[4]) ? "kw" : match[5] ? "fn" : "", match[4]]);
      if (match[5]) found.push(["", match[5]]);
    }
  }
  if (last < text.length) found.push(["", text.slice(last)]);
  return found;
}
