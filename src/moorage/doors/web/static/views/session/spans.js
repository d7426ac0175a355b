/** A run as spans on one time axis: turns, messages, tool calls, approvals and children. Pure, tested without a browser. */
import { oneLine, plain, textOf, worded } from "../../format.js";

/**
 * @typedef {object} Span
 * @property {string} id
 * @property {"run" | "turn" | "message" | "tool" | "approval" | "child" | "event"} kind
 * @property {string} label
 * @property {string} state a status, for shape and colour
 * @property {number} from milliseconds
 * @property {number} begin when work began: until then it was queued
 * @property {number | null} to null while it is open
 * @property {number} depth
 * @property {boolean} isPoint whether it has no duration
 * @property {string} [note] a word or two beside the label
 * @property {number} [tokens]
 * @property {number} [cost] US dollars
 * @property {any} [detail] the stored value behind it
 * @property {any} [run] of a child: its run
 */

/**
 * The spans of a run in the order they began. `entries` are those of its session from its prompt on, `children` the runs it asked for.
 * @param {any} run @param {any[]} entries @param {any[]} children @returns {Span[]}
 */
export function spans(run, entries, children) {
  const found = new Builder();
  for (const entry of entries) found.take(entry);
  for (const child of children) found.child(child);
  found.close(run.settled_at ? Date.parse(run.settled_at) : null);
  const all = found.all.sort((one, other) => one.from - other.from);
  return [asSpan(run, { id: run.run_id, kind: "run", label: "Run", depth: 0, detail: undefined }), ...all];
}

/** @param {any} run @param {Partial<Span>} rest @returns {Span} */
function asSpan(run, rest) {
  const from = Date.parse(run.created_at), to = run.settled_at ? Date.parse(run.settled_at) : null;
  const begin = run.started_at ? Date.parse(run.started_at) : to ?? from;
  return /** @type {Span} */ ({ state: run.state, from, begin, to, isPoint: false, tokens: total(run.usage), cost: costOf(run.metadata), detail: run, ...rest });
}

class Builder {
  /** @type {Span[]} */
  all = [];
  /** @type {Map<string, Span>} */
  #open = new Map();
  /** @type {Span | null} */
  #turn = null;
  #turns = 0;

  /** @param {any} entry */
  take(entry) {
    const { kind, data } = entry;
    if (kind === "message") this.#message(entry);
    else if (kind === "turn_started") this.#turnStarted(entry);
    else if (kind === "turn_ended") this.#turnEnded(entry);
    else if (kind === "approval_requested") this.#start(`approval ${data.approval_id}`, { kind: "approval", label: plain(oneLine(data.question)), state: "waiting", detail: data }, entry);
    else if (kind.startsWith("approval_")) this.#end(`approval ${data.approval_id}`, Date.parse(entry.at), { state: data.state ?? "abandoned", note: data.decision ?? worded(kind.slice("approval_".length)) });
    else if (kind === "error") this.#point(`Error: ${data.error ?? data.detail ?? ""}`, "failed", entry);
    else if (kind === "problem") this.#point("Invalid output", "run_failed", entry);
    else if (kind === "phase") this.#point(`Phase: ${data.to}`, "idle", entry);
    else if (kind === "suspended" || kind === "resumed") this.#point(worded(kind), kind === "suspended" ? "suspended" : "running", entry);
  }

  /** @param {any} run */
  child(run) {
    const inTurn = this.all.some((each) => each.kind === "turn" && each.from <= Date.parse(run.created_at) && (each.to ?? Infinity) >= Date.parse(run.created_at));
    this.all.push(asSpan(run, { id: run.run_id, kind: "child", label: plain(run.agent_name ?? "child"), depth: inTurn ? 2 : 1, note: run.mode === "sync" ? "sync" : run.mode === "async_callback" ? "callback" : "poll", run }));
  }

  /** End what the log left open: a call without a result ends with its turn. @param {number | null} end milliseconds; null while the run is open */
  close(end) {
    if (end === null) return;
    for (const [id] of this.#open) this.#end(id, end, { state: "abandoned", note: "no end" });
  }

  /** @param {any} entry */
  #turnStarted(entry) {
    const { turn_id: id, attempt } = entry.data;
    this.#turn = this.#start(`turn ${id}`, { kind: "turn", label: `Turn ${++this.#turns}`, state: "running", note: attempt > 1 ? `attempt ${attempt}` : undefined, detail: entry.data, depth: 1 }, entry);
  }

  /** @param {any} entry */
  #turnEnded(entry) {
    const { turn_id: id, outcome, reason, usage, epoch } = entry.data;
    const turn = this.#open.get(`turn ${id}`);
    const notes = [turn?.note, turn && epoch > turn.detail.epoch && "adopted", reason && worded(reason)].filter(Boolean);
    for (const [key, span] of this.#open) if (span.kind === "tool") this.#end(key, Date.parse(entry.at), { state: "abandoned", note: "no result" });
    this.#end(`turn ${id}`, Date.parse(entry.at), { state: outcome, note: notes.join(", ") || undefined, tokens: total(usage), detail: { ...turn?.detail, ...entry.data } });
    this.#turn = null;
  }

  /** @param {any} entry */
  #message(entry) {
    const parts = Array.isArray(entry.content) ? entry.content : [];
    const text = textOf(entry.content);
    if (text.trim()) this.all.push(this.#span(`message ${entry.number}`, { kind: "message", label: plain(oneLine(text)), state: entry.role, note: entry.role, isPoint: true, to: Date.parse(entry.at), detail: entry.content }, entry));
    for (const part of parts) {
      if (part.type === "tool_call") this.#start(`tool ${part.id}`, { kind: "tool", label: plain(part.name), state: "running", note: plain(oneLine(JSON.stringify(part.input ?? part.arguments ?? {}), 120)), detail: part }, entry);
      else if (part.type === "tool_result") this.#end(`tool ${part.call_id}`, Date.parse(entry.at), { state: part.is_error ? "failed" : "completed" }, part);
    }
  }

  /** @param {string} label @param {string} state @param {any} entry */
  #point(label, state, entry) {
    this.all.push(this.#span(`entry ${entry.number}`, { kind: "event", label: plain(oneLine(label)), state, isPoint: true, to: Date.parse(entry.at), detail: entry.data }, entry));
  }

  /** @param {string} id @param {Partial<Span>} rest @param {any} entry */
  #start(id, rest, entry) {
    const span = this.#span(id, rest, entry);
    this.all.push(span);
    this.#open.set(id, span);
    return span;
  }

  /** @param {string} id @param {number} at @param {Partial<Span>} rest @param {any} [result] */
  #end(id, at, rest, result) {
    const span = this.#open.get(id);
    if (!span) return;
    this.#open.delete(id);
    Object.assign(span, rest, { to: at }, result ? { detail: { call: span.detail, result } } : {});
  }

  /** @param {string} id @param {Partial<Span>} rest @param {any} entry @returns {Span} */
  #span(id, rest, entry) {
    const at = Date.parse(entry.at);
    return /** @type {Span} */ ({ id, from: at, begin: at, to: null, depth: this.#turn ? 2 : 1, isPoint: false, ...rest });
  }
}

/** All tokens of a usage, where it is known. @param {any} usage */
function total(usage) {
  return usage?.total_tokens ?? (usage?.input_tokens !== undefined || usage?.output_tokens !== undefined ? (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0) : undefined);
}

/** The cost that an agent reports with its result, in US dollars. @param {any} metadata */
export function costOf(metadata) {
  const cost = metadata?.cost_usd ?? metadata?.total_cost_usd;
  return typeof cost === "number" && cost >= 0 ? cost : undefined;
}

/** Counts of a trace, for its summary. @param {Span[]} all */
export function summary(all) {
  const [run, ...rest] = all;
  const count = (/** @type {string} */ kind) => rest.filter((each) => each.kind === kind).length;
  const children = rest.filter((each) => each.kind === "child");
  const sum = (/** @type {(number | undefined)[]} */ values) => (values.some((each) => each !== undefined) ? values.reduce((/** @type {number} */ whole, each) => whole + (each ?? 0), 0) : undefined);
  return {
    turns: count("turn"), tools: count("tool"), approvals: count("approval"), children: children.length,
    queued: run.begin - run.from, tokens: run.tokens, cost: run.cost,
    childTokens: sum(children.map((each) => each.tokens)), childCost: sum(children.map((each) => each.cost)),
  };
}
