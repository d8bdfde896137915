// The choice between light, dark and what the system has. Only this choice is stored beyond the tab.

import { h } from "./dom.js";

const STORED = "parlance-theme";
const THEMES = { system: "System", light: "Light", dark: "Dark" };

function apply(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** The control. It applies what was stored. */
export function themeSwitch() {
  const stored = localStorage.getItem(STORED);
  const theme = stored in THEMES ? stored : "system";
  apply(theme);
  const options = Object.entries(THEMES).map(([value, label]) => h("option", { value, selected: value === theme }, label));
  const select = h("select", { "aria-label": "Theme", class: "quiet", onChange: choose }, options);
  function choose() {
    localStorage.setItem(STORED, select.value);
    apply(select.value);
  }
  return select;
}
