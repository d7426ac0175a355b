/** Preact, its hooks, signals and `html` for templates, from one place. */
import htm from "./vendor/htm.mjs";
import { Fragment, h, render } from "./vendor/preact.mjs";

export const html = htm.bind(h);
export { Fragment, h, render };
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs";
export { batch, computed, effect, signal, useComputed, useSignal, useSignalEffect } from "./vendor/signals.mjs";
