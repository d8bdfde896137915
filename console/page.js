// The frame of the console: header, login, banner, and the view that the address' hash names.

import { read, session } from "./api.js";
import { banner } from "./banner.js";
import { h, named, replace, set, write } from "./dom.js";
import { login } from "./login.js";
import { button } from "./parts.js";
import { themeSwitch } from "./theme.js";
import * as graph from "./graph.js";
import * as requests from "./requests.js";
import * as playground from "./try/view.js";
import * as usage from "./usage.js";

/** Each view is a module with `name` and `title`, and the element `name-view`, which may have `show(rest)` for `#name/rest`. */
const VIEWS = [graph, requests, usage, playground];

const links = new Map(VIEWS.map((view) => [view.name, h("a", { href: `#${view.name}` }, view.title)]));
const who = h("span", { class: "who" });
const leave = button("Log out", () => session.open(""));
const account = h("div", { class: "account" }, who, leave);
const nav = h("nav", { "aria-label": "Views" }, h("ul", {}, [...links.values()].map((link) => h("li", {}, link))));
const main = h("main", { id: "main", tabindex: "-1" });

let current = { view: null, element: null };

function build() {
  document.body.prepend(
    h("a", { class: "skip", href: "#main", onClick: skip }, "Skip to the content"),
    h("header", { class: "frame" },
      h("a", { class: "brand", href: "#graph" }, h("img", { src: "icon.svg", alt: "", width: 20, height: 20 }), "Parlance"),
      nav,
      h("div", { class: "tools" }, h("a", { href: "../docs/" }, "Docs"), themeSwitch(), account)),
    banner(),
    main,
  );
}

// The hash names the view, so the link to the content moves the focus by itself.
function skip(event) {
  event.preventDefault();
  main.focus();
}

// An address that others made may be no text.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Shows what the hash names, or the login where there is no key. */
function show() {
  const [name, ...rest] = location.hash.slice(1).split("/").map(decoded);
  const view = VIEWS.find((candidate) => candidate.name === name) ?? VIEWS[0];
  const isIn = Boolean(session.key);
  account.hidden = nav.hidden = !isIn;
  for (const [viewName, link] of links) set(link, "aria-current", isIn && viewName === view.name ? "page" : null);
  document.title = `${isIn ? view.title : "Log in"} - Parlance console`;
  if (!isIn) {
    current = { view: null, element: null };
    return replace(main, login());
  }
  if (current.view !== view) {
    const isFirst = current.view === null;
    current = { view, element: document.createElement(`${view.name}-view`) };
    replace(main, h("h1", {}, view.title), current.element);
    if (!isFirst) main.focus({ preventScroll: true });
  }
  current.element.show?.(rest.join("/"));
}

async function greet() {
  write(who, "");
  if (!session.key) return;
  try {
    const me = await read("v1/me");
    replace(who, named(me.organisation.name), me.user ? [" / ", named(me.user.name ?? me.user)] : []);
  } catch {
    // The banner and the views say what is wrong with the server; the name of the organisation is not missed.
  }
}

build();
show();
greet();
addEventListener("hashchange", show);
session.addEventListener("change", () => {
  show();
  greet();
});
