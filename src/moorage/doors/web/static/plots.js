/** Numbers over time as plots. The same numbers are in a table, because screen readers cannot read a canvas. */
import uPlot from "./vendor/uplot.mjs";
import { span } from "./format.js";
import { html, useEffect, useRef } from "./html.js";
import { theme } from "./theme.js";

/** @typedef {{label: string, colour: string, values: Array<number | null>, isBars?: boolean, dash?: number[]}} Series */

// Distances between the lines of an axis of durations, in seconds: those of a clock, not of tens.
const STEPS_OF_TIME = [...[0.001, 0.01, 0.1].flatMap((unit) => [unit, 2 * unit, 5 * unit]), 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

/** A colour of the page's theme. @param {string} name */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * A plot with its title and legend.
 * @param {{title: string, times: number[], series: Series[], target?: number | null, format: (value: number) => string,
 * most?: number, step: number, isStacked?: boolean}} props
 */
export function Plot({ title, times, series, target = null, format, most, step, isStacked = false }) {
  const where = useRef();
  const shown = series.filter((each) => each.values.some((value) => value !== null));
  useEffect(() => {
    if (!shown.length) return;
    const box = where.current;
    const plot = new uPlot(options({ box, series, target, format, most, step }), data(times, isStacked ? stacked(series) : series.map((each) => each.values), target), box);
    const watch = new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: box.clientHeight }));
    watch.observe(box);
    return () => (watch.disconnect(), plot.destroy());
  }, [theme.value, JSON.stringify([times, series, target])]);
  return html`<figure class="card plot">
    <figcaption><h3>${title}</h3><span class="legend" hidden=${!shown.length}>${series.map((each) => html`<span key=${each.label}><i class=${each.isBars ? "bar" : each.dash ? "dashed" : ""} style=${{ color: `var(${each.colour})` }}></i>${each.label}</span>`)}
      ${target !== null && html`<span><i class="target"></i>target ${format(target)}</span>`}</span></figcaption>
    ${shown.length
      ? html`<div class="canvas" ref=${where} role="img" aria-label=${`${title}: ${inWords(series, format)}`}></div>`
      : html`<p class="nothing muted">Nothing to measure in this time</p>`}</figure>`;
}

/** The newest value of each line, for screen readers. @param {Series[]} series @param {(value: number) => string} format */
function inWords(series, format) {
  return series.map(({ label, values }) => {
    const last = values.findLast((value) => value !== null);
    return `${label} ${last === undefined || last === null ? "nothing" : `last ${format(last)}`}`;
  }).join(", ");
}

/** Sums of each series with all after it, to draw a stack from the back to the front. @param {Series[]} series */
function stacked(series) {
  return series.map((_, index) => series[index].values.map((_, at) => series.slice(index).reduce((sum, each) => sum + (each.values[at] ?? 0), 0)));
}

/** @param {number[]} times @param {Array<Array<number | null>>} lines @param {number | null} target */
function data(times, lines, target) {
  return [times, ...lines, ...(target === null ? [] : [times.map(() => target)])];
}

/** @param {any} given */
function options({ box, series, target, format, most, step }) {
  const grid = { stroke: colour("--line"), width: 1 }, axis = { stroke: colour("--muted"), font: `11px ${colour("--sans")}`, ticks: { show: false } };
  const top = (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => [0, most ?? Math.max(high || 0, target ?? 0, 1e-9) * 1.15];
  return {
    width: box.clientWidth,
    height: box.clientHeight,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    padding: [8, 12, 0, 0],
    scales: { x: { time: true, range: (_, low, high) => [low - step / 2, high + step / 2] }, y: { range: top } },
    axes: [
      { ...axis, grid: { show: false }, space: 70, size: 26, values: dates },
      { ...axis, grid, size: 56, ...(format === span ? { incrs: STEPS_OF_TIME } : {}), values: (_, splits) => splits.map((value) => (value === null ? "" : format(value))) },
    ],
    series: [{}, ...series.map(drawn), ...(target === null ? [] : [{ stroke: colour("--muted"), width: 1, dash: [4, 4], points: { show: false } }])],
    hooks: { setCursor: [(/** @type {any} */ plot) => tell(plot, box, series, format)] },
  };
}

/** @param {Series} each */
function drawn({ colour: name, isBars, dash }) {
  const stroke = colour(name);
  if (isBars) return { stroke, fill: stroke, width: 0, paths: uPlot.paths.bars({ size: [0.7, 40] }), points: { show: false } };
  return { stroke, width: 2, dash, spanGaps: true, points: { show: true, size: 6, fill: stroke } };
}

/** @param {any} _ @param {number[]} splits @param {any} __ @param {any} ___ @param {number} every */
function dates(_, splits, __, ___, every) {
  const isDays = every >= 86400;
  const shape = /** @type {Intl.DateTimeFormatOptions} */ (isDays ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit" });
  return splits.map((at) => new Date(at * 1000)[isDays ? "toLocaleDateString" : "toLocaleTimeString"](undefined, shape));
}

/** Show the values under the pointer as the title of the plot. @param {any} plot @param {HTMLElement} box @param {Series[]} series @param {(value: number) => string} format */
function tell(plot, box, series, format) {
  const index = plot.cursor.idx;
  if (index === null || index === undefined) return;
  const when = new Date(plot.data[0][index] * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  box.title = [when, ...series.map(({ label, values }) => `${label}: ${values[index] === null ? "–" : format(/** @type {number} */ (values[index]))}`)].join("\n");
}
