/** Values for people: times in the viewer's zone, sizes, short ids. Pure functions, tested without a browser. */

const UNITS = /** @type {const} */ ([["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]);

/** A span of seconds in at most two units: `3m 20s`, `2h`, `5d 4h`.
 * @param {number | null | undefined} seconds */
export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 1) return seconds <= 0 ? "0s" : `${Math.round(seconds * 1000)}ms`;
  let rest = Math.floor(seconds);
  const parts = [];
  for (const [name, size] of UNITS) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count}${name}`);
    else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** A span of milliseconds for measurements: `143ms`, `1.4s`, then as `span`. @param {number} milliseconds */
export function precise(milliseconds) {
  return milliseconds >= 1000 && milliseconds < 10_000 ? `${(milliseconds / 1000).toFixed(1)}s` : span(milliseconds / 1000);
}

/** How long ago, or how long until, in one word.
 * @param {string | null | undefined} instant @param {number} now milliseconds */
export function ago(instant, now) {
  if (!instant) return "–";
  const seconds = (now - Date.parse(instant)) / 1000;
  const words = coarse(Math.abs(seconds));
  if (Math.abs(seconds) < 5) return "now";
  return seconds >= 0 ? `${words} ago` : `in ${words}`;
}

/** Seconds in one unit. @param {number} seconds */
export function coarse(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400 * 2) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/** An instant in full, in the viewer's zone. @param {string | null | undefined} instant */
export function moment(instant) {
  if (!instant) return "–";
  return new Date(instant).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** The time of day, in the viewer's zone. @param {string | number} instant */
export function clock(instant) {
  return new Date(instant).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** An id short enough for a table: its end, which differs where UUIDs begin alike. @param {string} id */
export function shortId(id) {
  return id.length <= 14 ? id : `${/^[0-9a-f]{8}-/.test(id) ? "" : id.slice(0, 4)}…${id.slice(-8)}`;
}

/** The name of a session, else its short id. @param {any} session */
export function nameOf(session) {
  return session.session_name || shortId(session.session_id);
}

/** A status or a code as words: `run_failed` is "run failed". @param {string} code */
export function worded(code) {
  return code.replaceAll("_", " ");
}

/** A number with its word. @param {number} count @param {string} one @param {string} [many] */
export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString()} ${count === 1 ? one : many}`;
}

/** Bytes. @param {number} size */
export function bytes(size) {
  if (size < 1024) return `${size} B`;
  if (size < 1024 * 1024) return `${(size / 1024).toFixed(1)} KB`;
  return `${(size / 1024 / 1024).toFixed(1)} MB`;
}

/** Seconds of a duration as settings write it (`90`, `30s`, `10m`, `2h`, `7d`), or null if it is none.
 * @param {string} text */
export function seconds(text) {
  const found = /^\s*(\d+(?:\.\d+)?)\s*([smhdw]?)\s*$/.exec(text);
  if (!found) return null;
  return Number(found[1]) * { "": 1, s: 1, m: 60, h: 3600, d: 86400, w: 604800 }[found[2]];
}

/** Text on one line, of a bounded length. @param {string} text @param {number} [most] */
export function oneLine(text, most = 200) {
  const flat = plain(text.slice(0, most * 4).replace(/\s+/g, " ").trim());
  return flat.length > most ? `${flat.slice(0, most)}…` : flat;
}

/** The text of a message, without tool calls and results. @param {any} content */
export function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.filter((part) => part.type === "text").map((part) => part.text).join("\n");
}

/** The output of a tool result; programs give it one of three names. @param {any} part */
export function outputOf(part) {
  return part.output ?? part.content ?? part.result ?? null;
}

/** A message on one line: its text, tool calls with their names and arguments, and their results. @param {any} content */
export function saidBy(content) {
  if (!Array.isArray(content)) return String(content ?? "");
  return content.map((part) => {
    if (part.type === "text") return part.text;
    if (part.type === "tool_call") return `→ ${part.name}(${JSON.stringify(part.input ?? {})})`;
    if (part.type === "tool_result") return `← ${typeof outputOf(part) === "string" ? outputOf(part) : JSON.stringify(outputOf(part))}`;
    return `[${part.type}]`;
  }).join(" ");
}

/** Text without the marks of Markdown that a line of a table cannot show. @param {string} text */
export function unmarked(text) {
  return text.replace(/(\*\*|__|`+)(?=\S)(.+?)\1/g, "$2").replace(/^(?:#{1,6}|[-*>]|\d+\.)\s+/, "");
}

/** Text with its marks of writing direction made visible instead of obeyed.
 * @param {string} text */
export function plain(text) {
  return text.replace(/[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]/g, (mark) => `⟨U+${mark.charCodeAt(0).toString(16).toUpperCase()}⟩`);
}

/** A value as JSON to read. @param {any} value */
export function json(value) {
  return plain(typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");
}

const REASONS = {
  no_launcher: () => "no launcher takes this agent",
  launcher_busy: () => "waiting for a free launcher",
  unresponsive: (because) => `launcher silent since ${clock(because.since)}${because.until ? `, given up at ${clock(because.until)}` : ""}`,
  held: (because) => `held by ${plain(because.by ?? "")} until ${clock(because.until)}`,
  suspended: () => "starts when the session is resumed",
  waiting_for_approval: () => "waiting for an approval",
  waiting_for_child: () => "waiting for a child",
};

const FAILURES = {
  agent_failed: "the agent failed",
  agent_not_found: "the agent is not defined",
  launcher_lost: "the launcher was lost",
  timed_out: "the agent took too long",
  too_many_turns: "too many turns",
};

/** Why the last run of a session failed: the agent's own error where there is one. @param {any} session */
export function failure({ last_run: last, last_error: error }) {
  if (error && (!last?.reason || last.reason === "agent_failed")) return plain(oneLine(String(error)));
  return last?.reason ? FAILURES[last.reason] ?? worded(last.reason) : "the run failed";
}

/** Why a request has not started, in words. @param {{reason: string, by?: string, until?: string, since?: string}} because */
export function reason(because) {
  return REASONS[because.reason]?.(because) ?? because.reason;
}
