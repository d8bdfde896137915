// The call that a panel makes, to copy: for a shell, in Python, in JavaScript.
import { h, write } from "../dom.js";
import { button, folded, row } from "../parts.js";
import { curl, inJavaScript, inPython } from "./code.js";

const LANGUAGES = { curl, Python: inPython, JavaScript: inJavaScript };

/** An element, and `refresh`, which writes the call anew from `describe()`: a request, or texts by language. */
export function callToCopy(describe) {
  let chosen = "curl";
  const code = h("code", {});
  const said = h("span", { class: "muted", role: "status" });
  const buttons = Object.keys(LANGUAGES).map((name) => button(name, () => choose(name)));
  const copy = button("Copy", () => put(code.textContent, said));
  const block = h("pre", { class: "code", tabindex: "0", role: "region", "aria-label": "The call" }, code);
  const element = folded("The same call to copy", row(buttons, copy, said), block);

  // A form that cannot be sent leaves the call of before: after a message of a chat, the one that was sent.
  const refresh = () => element.open && write(code, textOf(describe, chosen) ?? (code.textContent || "The form cannot be sent yet."));
  function choose(name) {
    chosen = name;
    write(code, "");
    for (const each of buttons) each.setAttribute("aria-pressed", each.textContent === name);
    write(said, "");
    refresh();
  }
  element.addEventListener("toggle", refresh);
  choose(chosen);
  return { element, refresh };
}

function textOf(describe, language) {
  try {
    const request = describe();
    return request.texts?.[language] ?? LANGUAGES[language](request);
  } catch {
    return null;
  }
}

async function put(text, said) {
  try {
    await navigator.clipboard.writeText(text);
    write(said, "Copied.");
  } catch {
    write(said, "The browser does not let this page copy; select the text.");
  }
}
