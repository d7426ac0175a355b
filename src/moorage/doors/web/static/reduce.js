/**
 * Apply an event to a session in memory. Pure. The page requests the session itself soon after if it is in sight;
 * all others need no request, even at twenty updates a second.
 */

/** @typedef {Record<string, any>} Session */
/** @typedef {{id: number, type: string, session_id: string, timestamp: string, data: Record<string, any>}} Event */

const FINAL = new Set(["completed", "failed", "abandoned"]);

/** @type {Record<string, (session: Session, data: Record<string, any>) => Record<string, any>>} */
const CHANGES = {
  message: (session) => ({ state: session.state === "created" ? "active" : session.state }),
  phase: (_, data) => ({ phase: data.to ?? undefined, state: "active" }),
  readiness: (_, data) => ({ resume_ready: data.resume_ready }),
  error: (session, data) => ({ error_count: (session.error_count || 0) + 1, last_error: data.error ?? data.detail }),
  turn_started: () => ({ state: "active", status: "running" }),
  turn_ended: () => ({ status: "idle" }),
  run_settled: (_, data) => (data.outcome === "failed" ? { status: "run_failed" } : {}),
  run_retried: () => ({ status: "queued" }),
  suspended: () => ({ state: "suspended", status: "suspended" }),
  resumed: () => ({ state: "active", status: "idle" }),
  approval_requested: () => ({ status: "waiting", phase: "approval" }),
  finalized: (_, data) => ({ state: data.outcome, status: data.outcome, phase: data.outcome, summary: data.summary }),
};

/** The session after an event; the same object if nothing changes. @param {Session} session @param {Event} event */
export function after(session, event) {
  if (event.type === "session_deleted") return { ...session, deleted: { at: event.timestamp, ...event.data } };
  if (event.data.number !== undefined && event.data.number <= session.last_entry) return session;
  const told = CHANGES[event.type]?.(session, event.data) ?? {};
  const known = Object.fromEntries(Object.entries(told).filter(([, value]) => value !== undefined));
  return {
    ...session,
    ...known,
    status: known.status ?? (session.status === "created" && event.type === "message" ? "idle" : session.status),
    last_entry: event.data.number ?? session.last_entry,
    updated_at: event.timestamp,
    last_activity_at: event.timestamp,
  };
}

/** Whether a fetched session is at least as new as the shown one. @param {Session | null} shown @param {Session} fetched */
export function isNewer(shown, fetched) {
  if (!shown) return true;
  if (shown.deleted) return false;
  return fetched.last_entry >= shown.last_entry || fetched.version > shown.version;
}

/** @param {Session} session */
export const isFinal = (session) => FINAL.has(session.state);

/** Whether an agent has a turn: it runs, or waits in it for an approval. @param {Session} session */
export const isLive = (session) => session.status === "running" || Boolean(session.hold?.holder.startsWith("launcher:"));

/** Whether a driver holds a session; a launcher that runs its agent does not count. @param {Session} session */
export const isHeld = (session) => Boolean(session.hold) && !session.hold.holder.startsWith("launcher:");

/** Whether a session fits the filters of a list, as far as the page can tell.
 * @param {Session} session @param {Record<string, string>} filters */
export function fits(session, filters) {
  return ["state", "status", "phase"].every((name) => !filters[name] || session[name] === filters[name])
    && (!filters.agent || session.agent_name === filters.agent)
    && (!filters.task || session.task_id === filters.task)
    && (!filters.parent || session.parent_session_id === filters.parent || session.parent_session_name === filters.parent)
    && (!filters.name_prefix || (session.session_name || "").startsWith(filters.name_prefix));
}

/**
 * Parse server-sent events from pieces of a stream; `push` returns the complete ones.
 */
export class Frames {
  #rest = "";
  /** The last event id. @type {string | null} */
  id = null;

  /** @param {string} piece @returns {Array<{id: string | null, type: string, data: string}>} */
  push(piece) {
    this.#rest += piece;
    const blocks = this.#rest.split("\n\n");
    this.#rest = blocks.pop() ?? "";
    return blocks.map((block) => this.#frame(block)).filter((frame) => frame !== null);
  }

  /** @param {string} block */
  #frame(block) {
    let type = "message", data = "";
    for (const line of block.split("\n")) {
      const at = line.indexOf(": ");
      const [name, value] = at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 2)];
      if (name === "id") this.id = value;
      else if (name === "event") type = value;
      else if (name === "data") data += data ? `\n${value}` : value;
    }
    return data ? { id: this.id, type, data } : null;
  }
}
