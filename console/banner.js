// Says that the server is away, or newer than the page.

import { address, session } from "./api.js";
import { h, replace } from "./dom.js";
import { feed } from "./events.js";
import { button, note } from "./parts.js";

/** The banner: empty while all is well. A screen reader announces what comes into it. */
export function banner() {
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
