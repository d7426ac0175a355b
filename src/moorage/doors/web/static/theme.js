/** Light or dark: the choice of the viewer, else that of the system. */
import { effect, signal } from "./html.js";

const KEPT = "moorage.theme";
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const system = signal(prefersDark.matches ? "dark" : "light");
prefersDark.addEventListener("change", () => (system.value = prefersDark.matches ? "dark" : "light"));

/** The choice of the viewer: `light`, `dark` or null. */
export const chosen = signal(/** @type {string | null} */ (read()));
/** The current theme. */
export const theme = signal("light");

export function toggle() {
  chosen.value = theme.value === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEPT, chosen.value);
  } catch {
    // storage is blocked: the choice lasts until the page is closed
  }
}

effect(() => {
  theme.value = chosen.value ?? system.value;
  document.documentElement.dataset.theme = theme.value;
});

function read() {
  try {
    return localStorage.getItem(KEPT);
  } catch {
    return null;
  }
}
