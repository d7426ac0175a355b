/** The log of one session: the newest page first, earlier pages on request, later entries as they arrive. */
import { at, get } from "../../api.js";
import { batch, signal } from "../../html.js";

/** @typedef {{number: number, kind: string, at: string, role: string | null, content: any, data: any, by: string | null, interface: string | null}} Entry */

const PAGE = 100;

/** The entry of an event. @param {import("../../reduce.js").Event} event @returns {Entry} */
export function entryOf(event) {
  const { number, by, interface: door, role = null, content = null, client_key: _, ...data } = event.data;
  const isMessage = event.type === "message";
  return { number, kind: event.type, at: event.timestamp, role: isMessage ? role : null, content: isMessage ? content : null, data: isMessage ? null : data, by, interface: door };
}

/** Two lists of entries as one, in order, each number once. @param {Entry[]} known @param {Entry[]} more */
export function merged(known, more) {
  if (!more.length) return known;
  if (!known.length || more[0].number > known[known.length - 1].number) return [...known, ...more];
  const all = new Map([...known, ...more].map((entry) => [entry.number, entry]));
  return [...all.values()].sort((one, other) => one.number - other.number);
}

export class Entries {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.all = signal(/** @type {Entry[]} */ ([]));
    this.error = signal(/** @type {any} */ (null));
    this.hasEarlier = signal(false);
    this.isLoaded = signal(false);
    this.isFilling = false;
  }

  async load() {
    try {
      const page = await get(at`/sessions/${this.id}/log`, { newest_first: true, limit: PAGE });
      this.#put(page.items.reverse(), Boolean(page.next));
    } catch (error) {
      this.error.value = error;
    }
  }

  async earlier() {
    const first = this.all.peek()[0]?.number;
    const page = await get(at`/sessions/${this.id}/log`, { newest_first: true, limit: PAGE, before: first });
    this.#put(page.items.reverse(), Boolean(page.next));
  }

  /** Load until an entry is there. @param {number} number */
  async reach(number) {
    while (this.hasEarlier.peek() && this.all.peek()[0].number > number) await this.earlier();
  }

  /** @param {import("../../reduce.js").Event[]} events */
  hear(events) {
    const mine = events.filter((event) => event.session_id === this.id && event.type !== "session_deleted").map(entryOf);
    if (!mine.length || !this.isLoaded.peek()) return;
    this.all.value = merged(this.all.peek(), mine);
    if (mine[0].number > this.#last(mine[0].number) + 1) void this.fill();
  }

  /** Load the entries that are missing between known ones. */
  async fill() {
    if (this.isFilling) return;
    this.isFilling = true;
    try {
      const known = this.all.peek();
      const gap = known.find((entry, index) => index > 0 && known[index - 1].number + 1 < entry.number);
      if (!gap) return;
      const before = known[known.indexOf(gap) - 1].number;
      const page = await get(at`/sessions/${this.id}/log`, { after: before, before: gap.number, limit: 1000 });
      this.all.value = merged(this.all.peek(), page.items);
    } finally {
      this.isFilling = false;
    }
  }

  /** The last number before this one. @param {number} number */
  #last(number) {
    const known = this.all.peek();
    return known.findLast((entry) => entry.number < number)?.number ?? number - 1;
  }

  /** @param {Entry[]} entries @param {boolean} hasEarlier */
  #put(entries, hasEarlier) {
    batch(() => {
      this.all.value = merged(this.all.peek(), entries);
      this.hasEarlier.value = hasEarlier;
      this.isLoaded.value = true;
      this.error.value = null;
    });
  }
}
