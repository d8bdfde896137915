// The choice between light, dark and what the system has. Only this choice is stored beyond the tab.

import { menu } from "./parts.js";

const STORED = "parlance-theme";
const THEMES = [["system", "System"], ["light", "Light"], ["dark", "Dark"]];

function apply(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** The control. It applies what was stored. */
export function themeSwitch() {
  const onChange = ({ target }) => {
    localStorage.setItem(STORED, target.value);
    apply(target.value);
  };
  const select = menu({ "aria-label": "Theme", class: "quiet", onChange }, THEMES, localStorage.getItem(STORED));
  apply(select.value);
  return select;
}
