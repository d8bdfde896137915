// The call that a panel makes, to copy: for a shell, in Python, in JavaScript.
import { h, write } from "../dom.js";
import { curl, inJavaScript, inPython } from "./code.js";

const LANGUAGES = [["curl", curl], ["Python", inPython], ["JavaScript", inJavaScript]];

/** An element, and `refresh`, which writes the call anew from `describe()`: a request, or texts by language. */
export function callToCopy(describe) {
  let [chosen] = LANGUAGES[0];
  const code = h("code", {});
  const said = h("span", { class: "muted", role: "status" });
  const buttons = LANGUAGES.map(([name]) => h("button", { class: "button quiet", type: "button", onClick: () => choose(name) }, name));
  const copy = h("button", { class: "button quiet", type: "button", onClick: () => put(code.textContent, said) }, "Copy");
  const block = h("pre", { class: "code", tabindex: "0", role: "region", "aria-label": "The call" }, code);
  const element = h("details", { class: "call" }, h("summary", {}, "The same call to copy"), h("div", { class: "row" }, buttons, copy, said), block);

  const refresh = () => element.open && write(code, textOf(describe, chosen));
  function choose(name) {
    chosen = name;
    for (const button of buttons) button.setAttribute("aria-pressed", button.textContent === name);
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
    return request.texts?.[language] ?? LANGUAGES.find(([name]) => name === language)[1](request);
  } catch (error) {
    return `The form cannot be sent yet. ${error.message}`;
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
