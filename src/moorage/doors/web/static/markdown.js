/**
 * Markdown, drawn safely: text becomes nodes of our own choice and never markup, so a stored `<script>` is seven
 * characters. Links lead out only by http, https and mailto; images are links, because loading one would tell its host
 * who reads. Every step is linear in the length of the text.
 */
import { plain } from "./format.js";
import { highlighted } from "./highlight.js";
import { html } from "./html.js";

/** @typedef {{kind: string, [field: string]: any}} Block */

const SAFE = /^(?:https?:\/\/|mailto:|#)/i;

/** Text as blocks. @param {string} text @returns {Block[]} */
export function blocks(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  /** @type {Block[]} */
  const found = [];
  for (let at = 0; at < lines.length; ) at = block(lines, at, found);
  return found;
}

/** Read one block and return where the next begins. @param {string[]} lines @param {number} at @param {Block[]} found */
function block(lines, at, found) {
  const line = lines[at];
  const fence = /^ {0,3}(```+|~~~+)\s*([\w+#.-]{0,30})/.exec(line);
  if (fence) return code(lines, at, found, fence[1], fence[2]);
  if (!line.trim()) return at + 1;
  const heading = /^ {0,3}(#{1,6}) +/.exec(line);
  if (heading) {
    found.push({ kind: "heading", level: heading[1].length, text: line.slice(heading[0].length) });
    return at + 1;
  }
  if (/^ {0,3}(?:-{3,}|\*{3,}|_{3,}) *$/.test(line)) {
    found.push({ kind: "rule" });
    return at + 1;
  }
  if (/^ {0,3}>/.test(line)) return quote(lines, at, found);
  if (item(line)) return list(lines, at, found);
  if (line.includes("|") && /^[ |:-]{3,}$/.test(lines[at + 1] ?? "") && lines[at + 1].includes("-")) return table(lines, at, found);
  return paragraph(lines, at, found);
}

/** @param {string[]} lines @param {number} at @param {Block[]} found @param {string} fence @param {string} language */
function code(lines, at, found, fence, language) {
  let end = at + 1;
  while (end < lines.length && !lines[end].trimStart().startsWith(fence)) end += 1;
  found.push({ kind: "code", language, text: lines.slice(at + 1, end).join("\n") });
  return end + 1;
}

/** @param {string[]} lines @param {number} at @param {Block[]} found */
function quote(lines, at, found) {
  let end = at;
  while (end < lines.length && /^ {0,3}>/.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(/^ {0,3}> ?/, "")).join("\n");
  found.push({ kind: "quote", blocks: blocks(inner) });
  return end;
}

/** @param {string} line */
function item(line) {
  return /^( {0,12})(?:([-*+])|(\d{1,9})[.)]) +/.exec(line);
}

/** @param {string[]} lines @param {number} at @param {Block[]} found */
function list(lines, at, found) {
  const first = /** @type {RegExpExecArray} */ (item(lines[at]));
  /** @type {{depth: number, text: string}[]} */
  const items = [];
  let end = at;
  for (; end < lines.length; end += 1) {
    const next = item(lines[end]);
    if (next) items.push({ depth: Math.min(Math.floor(next[1].length / 2), 6), text: lines[end].slice(next[0].length) });
    else if (/^ {2,}\S/.test(lines[end]) && items.length) items[items.length - 1].text += `\n${lines[end].trim()}`;
    else break;
  }
  found.push({ kind: "list", ordered: Boolean(first[3]), start: Number(first[3] || 1), items });
  return end;
}

/** @param {string[]} lines @param {number} at @param {Block[]} found */
function table(lines, at, found) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const cells = (/** @type {string} */ line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  found.push({ kind: "table", head: cells(lines[at]), rows: lines.slice(at + 2, end).map(cells) });
  return end;
}

/** @param {string[]} lines @param {number} at @param {Block[]} found */
function paragraph(lines, at, found) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !/^ {0,3}(?:#{1,6} |>|```|~~~)/.test(lines[end]) && !item(lines[end])) end += 1;
  found.push({ kind: "paragraph", text: lines.slice(at, end).join("\n") });
  return end;
}

/** A line of text as pieces: `{kind: text | code | bold | italic | struck | link | image | break}`.
 * @param {string} text @returns {Block[]} */
export function inline(text) {
  /** @type {Block[]} */
  const found = [];
  /** Closing marks that the rest of the text lacks: a repeated search for them would take quadratic time. @type {Set<string>} */
  const absent = new Set();
  let plainFrom = 0, at = 0;
  const close = (/** @type {string} */ mark, /** @type {number} */ from) => {
    if (absent.has(mark)) return -1;
    const end = text.indexOf(mark, from);
    if (end < 0) absent.add(mark);
    return end;
  };
  const put = (/** @type {Block} */ piece, /** @type {number} */ next) => {
    if (at > plainFrom) found.push({ kind: "text", text: text.slice(plainFrom, at) });
    found.push(piece);
    at = plainFrom = next;
  };
  while (at < text.length) {
    const char = text[at];
    if (char === "\\" && /[\\`*_~[\]()#>!|-]/.test(text[at + 1] ?? "")) put({ kind: "text", text: text[at + 1] }, at + 2);
    else if (char === "\n") put({ kind: "break" }, at + 1);
    else if (!marked(char)) at += 1;
    else {
      const piece = span(text, at, close);
      if (piece) put(piece.piece, piece.next);
      else at += 1;
    }
  }
  if (at > plainFrom) found.push({ kind: "text", text: text.slice(plainFrom) });
  return found;
}

/** @param {string} char */
const marked = (char) => "`*_~[!h".includes(char);

/** The inline element that a mark starts here, if any. @param {string} text @param {number} at @param {(mark: string, from: number) => number} close */
function span(text, at, close) {
  const two = text.slice(at, at + 2);
  if (text[at] === "`") return between(text, at, "`", "code", close);
  if (two === "**" || two === "__") return between(text, at, two, "bold", close);
  if (two === "~~") return between(text, at, two, "struck", close);
  if ((text[at] === "*" || (text[at] === "_" && !/\w/.test(text[at - 1] ?? ""))) && /\S/.test(text[at + 1] ?? "")) return between(text, at, text[at], "italic", close);
  if (two === "![") return reference(text, at + 1, "image", close);
  if (text[at] === "[") return reference(text, at, "link", close);
  if (text.startsWith("http", at) && !/\w/.test(text[at - 1] ?? "")) return bare(text, at);
  return null;
}

/** @param {string} text @param {number} at @param {string} mark @param {string} kind @param {(mark: string, from: number) => number} close */
function between(text, at, mark, kind, close) {
  const end = close(mark, at + mark.length);
  if (end <= at + mark.length) return null;
  const inner = text.slice(at + mark.length, end);
  if (kind !== "code" && inner.includes("\n\n")) return null;
  return { piece: { kind, text: inner }, next: end + mark.length };
}

/** @param {string} text @param {number} at @param {"link" | "image"} kind @param {(mark: string, from: number) => number} close */
function reference(text, at, kind, close) {
  const middle = close("](", at + 1);
  if (middle < 0 || middle - at > 500) return null;
  const end = close(")", middle + 2);
  if (end < 0 || end - middle > 2000) return null;
  const href = text.slice(middle + 2, end).trim().split(/\s/)[0];
  return { piece: { kind: SAFE.test(href) ? kind : "text", text: SAFE.test(href) ? text.slice(at + 1, middle) : text.slice(at, end + 1), href }, next: end + 1 };
}

/** @param {string} text @param {number} at */
function bare(text, at) {
  const url = /^https?:\/\/[^\s<>"'`)\]]{1,2000}/.exec(text.slice(at, at + 2010))?.[0].replace(/[.,;:!?]+$/, "");
  return url ? { piece: { kind: "link", text: url, href: url }, next: at + url.length } : null;
}

// Drawn ---------------------------------------------------------------------------------------------

/** @param {{text: string}} props */
export function Markdown({ text }) {
  return html`<div class="md">${blocks(text).map(drawn)}</div>`;
}

/** @param {Block} block @returns {any} */
function drawn(block) {
  switch (block.kind) {
    case "heading": return html`<p class="md-h md-h${block.level}" role="heading" aria-level=${Math.min(block.level + 2, 6)}>${pieces(block.text)}</p>`;
    case "code": return html`<pre class="code" tabindex="0" data-language=${block.language || undefined}><code>${highlighted(block.text, block.language)}</code></pre>`;
    case "quote": return html`<blockquote>${block.blocks.map(drawn)}</blockquote>`;
    case "rule": return html`<hr />`;
    case "list": return html`<div class="md-list" role="list">${block.items.map((each, index) => html`<div role="listitem" class="md-item d${each.depth}"><span class="bullet" aria-hidden="true">${block.ordered ? `${block.start + index}.` : "•"}</span><span>${pieces(each.text)}</span></div>`)}</div>`;
    case "table": return html`<div class="md-table" tabindex="0"><table class="plain"><thead><tr>${block.head.map((cell) => html`<th>${pieces(cell)}</th>`)}</tr></thead><tbody>${block.rows.map((row) => html`<tr>${row.map((cell) => html`<td>${pieces(cell)}</td>`)}</tr>`)}</tbody></table></div>`;
    default: return html`<p>${pieces(block.text)}</p>`;
  }
}

/** @param {string} text */
function pieces(text) {
  return inline(text).map((piece) => {
    const words = plain(piece.text ?? "");
    switch (piece.kind) {
      case "code": return html`<code>${words}</code>`;
      case "bold": return html`<strong>${words}</strong>`;
      case "italic": return html`<em>${words}</em>`;
      case "struck": return html`<del>${words}</del>`;
      case "break": return html`<br />`;
      case "link": return html`<a href=${piece.href} rel="noreferrer noopener" target="_blank" title=${piece.href}>${words}</a>`;
      case "image": return html`<a class="picture" href=${piece.href} rel="noreferrer noopener" target="_blank" title=${piece.href}>${words || "picture"}</a>`;
      default: return words;
    }
  });
}
