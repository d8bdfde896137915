// What a program tells the kit: one line of JSON for each step, as `python/steps.py` writes it.
const MOST_CHARS = 400;
const steps = [];

// A step works unless it throws. One with `cannot` must throw an error with the text `error`.
export function step(name, take, { cannot = "", error = "" } = {}) {
  steps.push({ name, take, cannot, error });
}

// Takes all steps in the order of the file. One that fails does not stop the next.
export async function run() {
  for (const { name, take, cannot, error } of steps) {
    let failed = "";
    try {
      await take();
    } catch (raised) {
      failed = `${raised?.name ?? "Error"}: ${raised?.message ?? raised} ${raised?.statusCode ?? ""}`;
    }
    const is_expected = cannot ? failed.includes(error) : true;
    console.log(JSON.stringify({ step: name, cannot, failed: failed.slice(0, MOST_CHARS), is_expected }));
  }
}

export function check(holds, what) {
  if (!holds) throw new Error(`not so: ${what}`);
}
