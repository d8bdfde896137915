// Makes elements. Strings become text nodes and never markup, so what others have named stays text.

const SVG = "http://www.w3.org/2000/svg";
const SCHEMES = new Set(["http:", "https:", "blob:"]);
const ADDRESSES = new Set(["href", "src"]);

/** An element of HTML. Props: attributes, `class`, `data-*`, booleans, and `onClick` and the like as functions. */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

export const svg = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Sets a prop of `h`. Does nothing where the attribute has this value already; null and false take it away. */
export function set(element, name, value) {
  if (/^on/i.test(name)) {
    if (typeof value === "function") element.addEventListener(name.slice(2).toLowerCase(), value);
    return;
  }
  const absent = value === null || value === undefined || (value === false && !name.startsWith("aria-"));
  if (absent) return void element.removeAttribute(name);
  const text = value === true && !name.startsWith("aria-") ? "" : String(value);
  if (ADDRESSES.has(name) && !isSafe(text, name)) return void element.removeAttribute(name);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

// An address that came from others could be a program (`javascript:`). Pictures may be data.
function isSafe(address, name) {
  if (!URL.canParse(address, document.baseURI)) return false;
  const { protocol } = new URL(address, document.baseURI);
  return SCHEMES.has(protocol) || (name === "src" && protocol === "data:");
}

/** Puts `children` in the place of what `parent` holds. */
export function replace(parent, ...children) {
  parent.replaceChildren(...nodes(children));
  return parent;
}

/** Writes `text` into `node`, if it is not there already: an unchanged node is announced by no screen reader. */
export function write(node, text) {
  if (node.textContent !== String(text)) node.textContent = text;
  return node;
}

/**
 * Brings the children of `parent` in line with `items`, in place: one child for each, known by `keyOf(item)`, made by
 * `make(item)` once and brought up to date by `update(child, item)` each time. Children of other keys go.
 */
export function keep(parent, items, keyOf, make, update = () => {}) {
  const present = new Map([...parent.children].map((child) => [child.itemKey, child]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const child = present.get(key) ?? Object.assign(make(item), { itemKey: key });
    present.delete(key);
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
    update(child, item);
  }
  for (const child of present.values()) child.remove();
}

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/gu;
const LONGEST_NAME = 200;

/** A name as one line of at most 200 characters; invisible ones are written out (U+202E). */
export function visible(name) {
  const characters = [...String(name).slice(0, 2 * LONGEST_NAME)];
  const short = characters.length > LONGEST_NAME ? `${characters.slice(0, LONGEST_NAME).join("")}…` : characters.join("");
  return short.replace(HIDDEN, (char) => `[U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

/** The same as an element of its own, whose direction of writing does not reach what stands beside it. */
export const named = (name, props) => h("bdi", { class: "name", ...props }, visible(name));
