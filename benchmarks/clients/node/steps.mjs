// What a program tells the kit: one line of JSON for each step, as `python/steps.py` writes it.
const MOST_CHARS = 400;
const steps = [];

// A step works unless it throws. One with `cannot` must throw an error with the text `error`.
export function step(name, take, { cannot = "", error = "" } = {}) {
  steps.push({ name, take, cannot, error });
}

// Thrown by a step that cannot be tried here, such as one whose client has no build for this platform.
export class NotHere extends Error {}

// Takes all steps in the order of the file. One that fails does not stop the next.
export async function run() {
  for (const { name, take, cannot, error } of steps) {
    let failed = "";
    let not_run = "";
    try {
      await take();
    } catch (raised) {
      if (raised instanceof NotHere) not_run = raised.message;
      failed = `${raised?.name ?? "Error"}: ${raised?.message ?? raised} ${raised?.statusCode ?? ""}`;
    }
    const is_expected = cannot ? failed.includes(error) : true;
    console.log(JSON.stringify({ step: name, cannot, failed: failed.slice(0, MOST_CHARS), is_expected, not_run }));
  }
}

export function check(holds, what) {
  if (!holds) throw new Error(`not so: ${what}`);
}
