// Asks for a key, tries it, and shows the server's own sentence about one that does not open it.

import { read, session } from "./api.js";
import { h, write } from "./dom.js";

export function login() {
  const key = h("input", {
    id: "key", name: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true,
    "aria-describedby": "key-help key-error",
  });
  const remember = h("input", { type: "checkbox" });
  const fault = h("p", { id: "key-error", class: "error", role: "alert" });
  const button = h("button", { class: "button", type: "submit" }, "Open");

  async function submit(event) {
    event.preventDefault();
    write(fault, "");
    button.disabled = true;
    try {
      const candidate = key.value.trim();
      await read("v1/me", { headers: { Authorization: `Bearer ${candidate}` } });
      session.open(candidate, remember.checked);
    } catch (error) {
      write(fault, error.message);
      key.select();
    } finally {
      button.disabled = false;
    }
  }

  queueMicrotask(() => key.focus());
  return h("form", { class: "login card", onSubmit: submit },
    h("h1", {}, "Console"),
    h("label", { class: "field", for: "key" }, "Key"),
    key,
    h("p", { id: "key-help", class: "muted" }, h("code", {}, "make serve"), " prints one when the graph is ready. The page keeps it in memory only."),
    h("label", { class: "check" }, remember, " Remember it in this tab until the tab is closed"),
    fault,
    button);
}
