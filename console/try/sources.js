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

/** The models of a kind, as `chat`. */
export const models = async (kind) => (await list("v1/models")).data.filter((model) => model.kind === kind);

/** The model `id`. */
export const model = async (id) => (await list("v1/models")).data.find((entry) => entry.id === id);

/** Makes the options of a menu of the models of a kind. */
const modelOptions = (kind) => async () => {
  const known = (await models(kind)).map(({ id }) => [id, id]);
  return known.length ? known : [["", "no such model is set up here"]];
};

/** The field that chooses such a model. */
export const modelField = (kind) => ({ name: "model", label: "Model", kind: "choice", options: modelOptions(kind) });

/** Codes of languages as options, in words where the browser knows them. */
export function languageOptions(codes) {
  const names = new Intl.DisplayNames(["en"], { type: "language" });
  return codes.map((code) => [code, `${names.of(code)} (${code})`]).sort(([, a], [, b]) => a.localeCompare(b));
}
