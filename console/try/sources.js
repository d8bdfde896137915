// Lists that several panels choose from, read once for each key: models, voices, what can be designed.
import { read } from "../api.js";

const lists = new Map();

/** What `path` lists, read once; a list that could not be read is read again. */
export function list(path) {
  if (!lists.has(path)) {
    const reading = read(path);
    reading.catch(() => lists.delete(path));
    lists.set(path, reading);
  }
  return lists.get(path);
}

/** Forgets the list at `path`, or all of them. */
export function forgetLists(path) {
  if (path) lists.delete(path);
  else lists.clear();
}

export const models = async (kind) => (await list("v1/models")).data.filter((model) => model.kind === kind);

export const model = async (id) => (await list("v1/models")).data.find((entry) => entry.id === id);

const modelOptions = (kind) => async () => {
  const known = (await models(kind)).map(({ id }) => [id, id]);
  return known.length ? known : [["", "no such model is set up here"]];
};

export const modelField = (kind) => ({ name: "model", label: "Model", kind: "choice", options: modelOptions(kind) });
