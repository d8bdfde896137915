// Says that the server is away, or newer than the page.

import { address, session } from "./api.js";
import { h, replace } from "./dom.js";
import { feed } from "./events.js";

const RELOADED = "parlance-upgraded";
const CALM_S = 60; // a page that lived so long may reload itself again
/** The ETag of each file that this page is made of, by its address. */
const modules = new Map();

/** The banner: empty while all is well. A screen reader announces what comes into it. */
export function banner() {
  const place = h("div", { class: "banner", role: "status" });
  let wasLost = false;
  feed.addEventListener("connection", async () => {
    if (feed.connection === "lost") {
      wasLost = true;
      replace(place, lost(feed.fault));
    } else if (feed.connection === "refused") replace(place, refused(feed.fault));
    else replace(place);
    if (feed.connection === "live" && wasLost) {
      wasLost = false;
      if (await hasChanged()) renew(place);
    }
  });
  remember();
  setTimeout(() => sessionStorage.removeItem(RELOADED), CALM_S * 1000);
  return place;
}

const lost = (fault) =>
  h(
    "p",
    { class: "note" },
    `${fault?.message ?? "The server has ended the stream."} The page shows what it last knew, and tries again by itself. `,
    h("button", { class: "button quiet", type: "button", onClick: () => feed.hurry() }, "Try now"),
  );

const refused = (fault) =>
  h(
    "p",
    { class: "note bad" },
    `${fault.message} `,
    h("button", { class: "button quiet", type: "button", onClick: () => (session.key = "") }, "Log in again"),
  );

// A page whose key is remembered loses nothing by a reload, unless somebody is typing in it.
function renew(place) {
  const isTyping = location.hash.startsWith("#try");
  if (session.remember && !isTyping && !sessionStorage.getItem(RELOADED)) {
    sessionStorage.setItem(RELOADED, "yes");
    return location.reload();
  }
  replace(
    place,
    h(
      "p",
      { class: "note" },
      "The server was upgraded, and this page is of before. ",
      h("button", { class: "button quiet", type: "button", onClick: () => location.reload() }, "Reload"),
    ),
  );
}

async function tag(url, cache) {
  const reply = await fetch(url, { cache, credentials: "omit" });
  return reply.headers.get("ETag");
}

// What the browser holds in its cache is what this page was made of.
async function remember() {
  const mine = performance.getEntriesByType("resource").map((entry) => entry.name);
  for (const url of new Set(mine.filter((name) => name.startsWith(address("console/").href) && /\.(js|css)$/.test(name)))) {
    modules.set(url, await tag(url, "force-cache").catch(() => null));
  }
}

async function hasChanged() {
  for (const [url, before] of modules) {
    const now = await tag(url, "no-cache").catch(() => before);
    if (now !== before) return true;
  }
  return false;
}
