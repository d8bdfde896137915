// States of an engine in the last hour, in slices of twenty seconds: small however often they change.

import { rank } from "./states.js";

export const HOUR_MS = 3_600_000;
export const SLICE_MS = 20_000;
const SLICES = HOUR_MS / SLICE_MS;

/** A slice shows the most telling state that it has seen. */
export class Timeline {
  #slices = new Map();
  #last = null;

  /** `bands` are runs `[from_ms, state]`, in the order of time. */
  constructor(bands = []) {
    for (const band of bands) this.#add(band);
  }

  /** Since when the engine is as it is, in ms, or null. */
  get sinceMs() {
    return this.#last?.[0] ?? null;
  }

  #add([fromMs, state]) {
    if (this.#last) this.#paint(this.#last[1], this.#last[0], fromMs);
    this.#last = [fromMs, state];
    this.#mark(Math.floor(fromMs / SLICE_MS), state);
  }

  /** The last hour until `nowMs` as runs `{fromMs, toMs, state}`, oldest first. Where nothing is known there is none. */
  runs(nowMs) {
    if (this.#last) this.#paint(this.#last[1], this.#last[0], nowMs);
    this.#prune(nowMs);
    const runs = [];
    for (const index of [...this.#slices.keys()].sort((one, other) => one - other)) {
      const [fromMs, state] = [index * SLICE_MS, this.#slices.get(index)];
      const before = runs.at(-1);
      if (before?.state === state && before.toMs === fromMs) before.toMs = fromMs + SLICE_MS;
      else runs.push({ fromMs, toMs: fromMs + SLICE_MS, state });
    }
    if (runs.length) runs.at(-1).toMs = Math.min(runs.at(-1).toMs, Math.max(nowMs, runs.at(-1).fromMs));
    return runs;
  }

  #paint(state, fromMs, toMs) {
    const first = Math.max(Math.floor(fromMs / SLICE_MS), Math.floor((toMs - HOUR_MS) / SLICE_MS));
    for (let index = first; index * SLICE_MS < toMs; index += 1) this.#mark(index, state);
  }

  #mark(index, state) {
    const present = this.#slices.get(index);
    if (present === undefined || rank(state) > rank(present)) this.#slices.set(index, state);
  }

  #prune(nowMs) {
    const oldest = Math.floor(nowMs / SLICE_MS) - SLICES;
    for (const index of this.#slices.keys()) if (index < oldest) this.#slices.delete(index);
  }
}
