/** Analytics as the page shows them: targets as numbers, measures as words, groups on a time axis without holes. Pure. */
import { bytes, span } from "./format.js";

const UNITS = { "%": 0.01, s: 1, min: 60, h: 3600, KB: 1000 };
export const STEPS = { hour: 3600, day: 86400, week: 604800 };

/** `> 60 %`, `< 5 min` as a number in the measure's unit, or null. @param {string | null | undefined} text */
export function targetOf(text) {
  const found = /^[<>]\s*([\d.]+)\s*(%|s|min|h|KB)\b|^[<>]\s*([\d.]+)\s*%/.exec(text ?? "");
  if (!found) return null;
  return found[3] ? Number(found[3]) * 0.01 : Number(found[1]) * UNITS[/** @type {keyof typeof UNITS} */ (found[2])];
}

/** The value of a measure, for people. @param {{value: number | null, unit: string}} measure */
export function told({ value, unit }) {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return percent(value);
  return unit === "seconds" ? span(value) : unit === "bytes" ? bytes(Math.round(value)) : value.toLocaleString();
}

/** @param {number} share */
export function percent(share) {
  const hundred = share * 100;
  return `${hundred > 0 && hundred < 10 && hundred % 1 ? hundred.toFixed(1) : Math.round(hundred)} %`;
}

/**
 * Groups by time on an axis without holes: seconds of each step, and its group or null.
 * @param {Array<{key: string}>} groups @param {"hour" | "day" | "week"} by @param {number} [from] seconds @param {number} [to] seconds
 * @returns {{times: number[], at: Array<any | null>}}
 */
export function axis(groups, by, from, to) {
  const step = STEPS[by];
  const known = new Map(groups.map((group) => [Date.parse(group.key) / 1000, group]));
  const told = [...known.keys()].sort((one, other) => one - other);
  if (!told.length) return { times: [], at: [] };
  const first = from === undefined ? told[0] : told[0] - step * Math.max(0, Math.floor((told[0] - from) / step));
  const last = Math.max(told[told.length - 1], to ?? 0);
  const times = [];
  for (let time = first; time <= last && times.length < 2000; time += step) times.push(time);
  return { times, at: times.map((time) => known.get(time) ?? null) };
}
