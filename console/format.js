// Formats of numbers, times and money: in the language of the browser, with English words.

const counts = new Intl.NumberFormat();
const clocks = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const moments = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const dates = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

export const count = (number) => counts.format(number);

export const clock = (ms) => clocks.format(ms);

export const moment = (ms) => moments.format(ms);

/** A moment that the server wrote in seconds since 1970 or as RFC 3339, or a word where there is none. */
export const date = (value, none) =>
  value === null || value === undefined ? none : dates.format(typeof value === "number" ? value * 1000 : new Date(value));

/** A length of time: `12 ms`, `1.4 s`, `2 min 5 s`, `3 h 20 min`. */
export function duration(ms) {
  if (ms < 1) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 9_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3600)];
  if (minutes < 60) return seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
}

/** Millionths of a euro as euros, with as many digits as a small sum needs. */
export function money(microEur) {
  const euros = microEur / 1e6;
  const digits = euros === 0 || Math.abs(euros) >= 1 ? 2 : Math.abs(euros) >= 0.01 ? 4 : 6;
  return `€${euros.toLocaleString(undefined, { minimumFractionDigits: 2, maximumFractionDigits: digits })}`;
}

/** `1 request`, `3 requests`. */
export const plural = (number, noun) => `${counts.format(number)} ${noun}${number === 1 ? "" : "s"}`;
