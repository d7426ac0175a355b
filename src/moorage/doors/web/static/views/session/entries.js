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

/** The numbers around the first entries that are missing; null if none are. @param {Entry[]} known @returns {[number, number] | null} */
export function gapIn(known) {
  const index = known.findIndex((entry, at) => at > 0 && known[at - 1].number + 1 < entry.number);
  return index < 0 ? null : [known[index - 1].number, known[index].number];
}

export class Entries {
  /** Entries that arrived before the first page. @type {Entry[]} */
  #early = [];

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
      this.#putNewest(page.items.reverse(), Boolean(page.next));
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
    if (!mine.length) return;
    if (!this.isLoaded.peek()) {
      this.#early = [...this.#early, ...mine];
      return;
    }
    this.all.value = merged(this.all.peek(), mine);
    void this.fill();
  }

  /** Load the entries that are missing between known ones. If that fails, the next event tries again. */
  async fill() {
    if (this.isFilling) return;
    this.isFilling = true;
    try {
      for (let gap = gapIn(this.all.peek()); gap; gap = gapIn(this.all.peek())) {
        const page = await get(at`/sessions/${this.id}/log`, { after: gap[0], before: gap[1], limit: 1000 });
        if (!page.items.length) return;
        this.all.value = merged(this.all.peek(), page.items);
      }
    } catch {
      // The banner tells that the server cannot be reached.
    } finally {
      this.isFilling = false;
    }
  }

  /** Show the newest page. Earlier entries that do not adjoin it are loaded again on request.
   * @param {Entry[]} entries @param {boolean} hasEarlier */
  #putNewest(entries, hasEarlier) {
    const known = this.all.peek(), last = known.at(-1)?.number ?? 0;
    const adjoins = Boolean(known.length) && (entries[0]?.number ?? 0) <= last + 1;
    const early = this.#early;
    this.#early = [];
    batch(() => {
      if (!adjoins) this.all.value = [];
      const reachesFurther = adjoins && known[0].number < (entries[0]?.number ?? Infinity);
      this.#put(merged(entries, early), reachesFurther ? this.hasEarlier.peek() : hasEarlier);
    });
    void this.fill();
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
