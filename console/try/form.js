// Builds the form of a panel from a table of its fields, and reads what stands in it.
import { h, replace, visible } from "../dom.js";

/** A field that cannot be sent as it stands. */
export class Mistake extends Error {}

const KINDS = {
  text: ({ rows = 3 }) => h("textarea", { rows, spellcheck: "false" }),
  line: () => h("input", { type: "text", autocomplete: "off", spellcheck: "false" }),
  number: ({ min, max, step = "any" }) => h("input", { type: "number", min, max, step }),
  choice: () => h("select"),
  switch: () => h("input", { type: "checkbox" }),
  file: ({ accept }) => h("input", { type: "file", accept }),
};

// What stands in a control as what a request has for it; undefined means that the field is left out.
const READERS = {
  number: ({ value }) => (value === "" ? undefined : Number(value)),
  switch: ({ checked }) => checked,
  file: ({ files }) => files[0],
};

const READ_AS = {
  json: (text, { label }) => {
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new Mistake(`${label}: this is not JSON (${error.message}).`);
    }
  },
  lines: (text) => text.split("\n").map((line) => line.trim()).filter(Boolean),
};

/**
 * A form of `fields`: `{name, label, kind, value, hint, as, more, options}`. `options` gives `[value, label]` pairs,
 * now or later; fields with `more` lie in a part that opens. Texts may be read `as` `json` or `lines`.
 */
export class Form {
  #controls = new Map();

  constructor(fields, prefix) {
    this.fields = fields;
    const [plain, more] = [fields.filter((field) => !field.more), fields.filter((field) => field.more)];
    const row = (field) => this.#row(field, `${prefix}-${field.name}`);
    const folded = more.length > 0 && h("details", {}, h("summary", {}, "More fields"), h("div", { class: "fields" }, more.map(row)));
    this.element = h("div", {}, h("div", { class: "fields" }, plain.map(row)), folded);
  }

  #row(field, id) {
    const control = KINDS[field.kind](field);
    control.id = id;
    this.#controls.set(field.name, control);
    const hint = field.hint && h("p", { class: "muted", id: `${id}-hint` }, field.hint);
    if (hint) control.setAttribute("aria-describedby", hint.id);
    if (field.options) this.#fill(control, field);
    else this.set(field.name, field.value);
    const label = h("label", { for: id }, field.label);
    const parts = field.kind === "switch" ? [h("span", { class: "switch" }, control, label)] : [label, control];
    return h("div", { class: field.wide ? "entry wide" : "entry" }, parts, hint);
  }

  async #fill(control, field) {
    const fill = (pairs) => replace(control, pairs.map(([value, label]) => h("option", { value }, visible(label))));
    const chosen = control.value;
    try {
      if (field.options.constructor.name === "AsyncFunction") fill([["", "reading the list …"]]);
      fill(await field.options());
      const wanted = chosen || field.value;
      if (wanted !== undefined && [...control.options].some(({ value }) => value === wanted)) control.value = wanted;
      control.dispatchEvent(new Event("input", { bubbles: true }));
    } catch (error) {
      fill([["", `could not be read: ${error.message}`]]);
      control.addEventListener("focus", () => this.#fill(control, field), { once: true });
    }
  }

  /** Reads the options of the field `name` again. */
  refill(name) {
    return this.#fill(this.#controls.get(name), this.fields.find((field) => field.name === name));
  }

  control(name) {
    return this.#controls.get(name);
  }

  set(name, value) {
    const control = this.#controls.get(name);
    if (control.type === "checkbox") control.checked = Boolean(value);
    else if (control.type !== "file") control.value = value ?? "";
  }

  /** What stands in each field, by name. Throws Mistake. */
  values() {
    return Object.fromEntries(this.fields.map((field) => [field.name, this.#value(field)]));
  }

  #value(field) {
    const control = this.#controls.get(field.name);
    if (READERS[field.kind]) return READERS[field.kind](control);
    if (!control.value.trim()) return field.as === "lines" ? [] : undefined;
    return field.as ? READ_AS[field.as](control.value, field) : control.value;
  }
}

/** `object` without its undefined members and empty lists: what is left out of a request. */
export const present = (object) =>
  Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined && value?.length !== 0));
