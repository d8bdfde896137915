// Vectors of many dimensions as points of a plane: their two principal components, found by power iteration.

const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
const length = (a) => Math.sqrt(dot(a, a));

/** How alike two vectors are: the cosine of the angle between them, 0 where one has no length. */
export const cosine = (a, b) => dot(a, b) / (length(a) * length(b) || Infinity);

/** Points `[x, y]` of `vectors` along the two directions in which they differ most, and the share of variance of each. */
export function principal(vectors) {
  const size = vectors[0].length;
  const mean = Array.from({ length: size }, (_, column) => vectors.reduce((sum, row) => sum + row[column], 0) / vectors.length);
  let rows = vectors.map((row) => row.map((value, column) => value - mean[column]));
  const total = rows.reduce((sum, row) => sum + dot(row, row), 0);
  const [columns, shares] = [[], []];
  for (let component = 0; component < 2; component += 1) {
    const axis = direction(rows, size);
    const places = rows.map((row) => dot(row, axis));
    columns.push(places);
    shares.push(total ? dot(places, places) / total : 0);
    rows = rows.map((row, index) => row.map((value, column) => value - places[index] * axis[column]));
  }
  return { points: vectors.map((_, index) => [columns[0][index], columns[1][index]]), shares };
}

// The covariance matrix is never made: each step multiplies by the rows and by their transpose.
function direction(rows, size) {
  let axis = Array.from({ length: size }, (_, column) => Math.cos(column + 1));
  for (let step = 0; step < 60; step += 1) {
    const next = new Array(size).fill(0);
    for (const row of rows) {
      const weight = dot(row, axis);
      for (let column = 0; column < size; column += 1) next[column] += weight * row[column];
    }
    const norm = length(next);
    if (norm < 1e-12) return new Array(size).fill(0);
    axis = next.map((value) => value / norm);
  }
  return axis;
}
