// The frame of the console: header, theme, login, banner, and the view that the address' hash names.

import { address, read, session } from "./api.js";
import { h, named, replace, set, write } from "./dom.js";
import { feed } from "./events.js";
import { alert, button, menu, note } from "./parts.js";
import * as graph from "./graph.js";
import * as requests from "./requests.js";
import * as playground from "./try/view.js";
import * as usage from "./usage.js";

/** Each view is a module with `name` and `title`, and the element `name-view`, which may have `show(rest)` for `#name/rest`. */
const VIEWS = [graph, requests, usage, playground];

const THEME = "parlance-theme";
const THEMES = [["system", "System"], ["light", "Light"], ["dark", "Dark"]];

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

function apply(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** The choice of a theme, which alone is stored beyond the tab. Applies the stored one. */
function themeSwitch() {
  const onChange = ({ target }) => {
    localStorage.setItem(THEME, target.value);
    apply(target.value);
  };
  const select = menu({ "aria-label": "Theme", class: "quiet", onChange }, THEMES, localStorage.getItem(THEME));
  apply(select.value);
  return select;
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

/** Asks for a key, tries it, and shows the server's own sentence about one that does not open it. */
function login() {
  const key = h("input", {
    id: "key", name: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true,
    "aria-describedby": "key-help key-error",
  });
  const remember = h("input", { type: "checkbox" });
  const fault = alert({ id: "key-error" });
  const open = h("button", { class: "button", type: "submit" }, "Open");

  async function submit(event) {
    event.preventDefault();
    write(fault, "");
    open.disabled = true;
    try {
      const candidate = key.value.trim();
      await read("v1/me", { headers: { Authorization: `Bearer ${candidate}` } });
      session.open(candidate, remember.checked);
    } catch (error) {
      write(fault, error.message);
      key.select();
    } finally {
      open.disabled = false;
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
    open);
}

/** The banner: empty while all is well. A screen reader announces what comes into it. */
function banner() {
  const place = h("div", { class: "banner", role: "status" });
  const say = (text, ...action) => replace(place, note(`${text} `, button(...action)));
  const loaded = version();
  let before = "idle";
  feed.addEventListener("connection", async () => {
    const { connection, fault } = feed;
    const isBack = connection === "live" && before === "lost";
    before = connection;
    if (connection === "lost") {
      say(`${fault?.message ?? "The server has ended the stream."} The page shows what it last knew, and tries again by itself.`, "Try now", () => feed.hurry());
    } else if (connection === "refused") say(fault.message, "Log in again", () => session.open(""));
    else replace(place);
    if (!isBack) return;
    const [mine, now] = await Promise.all([loaded, version()]);
    if (mine && now && mine !== now && feed.connection === "live") {
      say("The server was upgraded, and this page is of before.", "Reload", () => location.reload());
    }
  });
  return place;
}

/** The tag of the page and of all that it loads, or null. */
async function version() {
  const reply = await fetch(address("console/"), { method: "HEAD", cache: "no-store", credentials: "omit" }).catch(() => null);
  return reply && reply.headers.get("ETag");
}

build();
show();
greet();
addEventListener("hashchange", show);
session.addEventListener("change", () => {
  show();
  greet();
});
