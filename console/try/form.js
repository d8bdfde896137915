// Builds the form of a panel from a table of its fields, and reads what stands in it.
import { h, replace, visible } from "../dom.js";
import { folded } from "../parts.js";

/** A field that cannot be sent as it stands. */
export class Mistake extends Error {}

const KINDS = {
  text: ({ rows = 3 }) => h("textarea", { rows, spellcheck: "false" }),
  line: () => h("input", { type: "text", autocomplete: "off", spellcheck: "false" }),
  number: ({ min, max, step = 1 }) => h("input", { type: "number", min, max, step }),
  choice: () => h("select"),
  switch: () => h("input", { type: "checkbox" }),
  file: ({ accept }) => h("input", { type: "file", accept }),
};

// What stands in a control as a request has it; undefined means that the field is left out.
const READERS = {
  number: ({ value }) => (value ? Number(value) : undefined),
  switch: ({ checked }) => checked || undefined,
  file: ({ files }) => files[0],
  lines: ({ value }) => value.split("\n").map((line) => line.trim()).filter(Boolean),
  json({ value }, { label }) {
    try {
      return value.trim() ? JSON.parse(value) : undefined;
    } catch (error) {
      throw new Mistake(`${label}: this is not JSON (${error.message}).`);
    }
  },
};

/**
 * A form of `fields`: `{name, label, kind, value, as, more, wide, options}`. `options` gives `[value, label]` pairs, now
 * or later; fields with `more` lie in a part that opens. A text may be read `as` `json` or `lines`.
 */
export class Form {
  #controls = new Map();

  constructor(fields, prefix) {
    this.fields = fields;
    const rows = (isMore) => fields.filter(({ more = false }) => more === isMore).map((field) => this.#row(field, prefix));
    const [plain, more] = [rows(false), rows(true)];
    const part = more.length > 0 && folded("More fields", h("div", { class: "fields" }, more));
    this.element = h("div", {}, h("div", { class: "fields" }, plain), part);
  }

  #row(field, prefix) {
    const { name, kind, wide } = field;
    const control = KINDS[kind](field);
    control.id = `${prefix}-${name}`;
    this.#controls.set(name, control);
    if (field.options) this.#fill(control, field);
    else this.set(name, field.value);
    const label = h("label", { for: control.id }, field.label);
    return h("div", { class: wide ? "entry wide" : "entry" }, kind === "switch" ? h("span", { class: "switch" }, control, label) : [label, control]);
  }

  async #fill(control, field) {
    const fill = (pairs) => replace(control, pairs.map(([value, label]) => h("option", { value }, visible(label))));
    try {
      fill([["", "reading the list …"]]);
      fill(await field.options());
      if ([...control.options].some(({ value }) => value === field.value)) control.value = field.value;
      control.dispatchEvent(new Event("input", { bubbles: true }));
    } catch (error) {
      fill([["", `could not be read: ${error.message}`]]);
      control.addEventListener("focus", () => this.#fill(control, field), { once: true });
    }
  }

  control(name) {
    return this.#controls.get(name);
  }

  set(name, value = "") {
    this.control(name).value = value;
  }

  /** What stands in each field, by name. Throws Mistake. */
  values() {
    const value = (field) => {
      const control = this.control(field.name);
      const read = READERS[field.as ?? field.kind];
      return read ? read(control, field) : control.value.trim() ? control.value : undefined;
    };
    return Object.fromEntries(this.fields.map((field) => [field.name, value(field)]));
  }
}

/** `object` without its undefined members and empty lists: what is left out of a request. */
export const present = (object) =>
  Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined && value?.length !== 0));
