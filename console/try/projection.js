// Vectors of many dimensions as points of a plane: their two principal components, found by power iteration.

const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
const length = (a) => Math.sqrt(dot(a, a));

/** How alike two vectors are: the cosine of the angle between them, 0 where one has no length. */
export const cosine = (a, b) => dot(a, b) / (length(a) * length(b) || Infinity);

/** Points `[x, y]` of `vectors` along the two directions in which they differ most, and the share of variance of each. */
export function principal(vectors) {
  const mean = vectors[0].map((_, column) => vectors.reduce((sum, row) => sum + row[column], 0) / vectors.length);
  const rows = vectors.map((row) => row.map((value, column) => value - mean[column]));
  let products = rows.map((row) => rows.map((other) => dot(row, other)));
  const total = products.reduce((sum, row, index) => sum + row[index], 0);
  const components = [0, 1].map(() => {
    const axis = direction(products);
    const weight = Math.max(0, dot(axis, products.map((row) => dot(row, axis))));
    products = products.map((row, index) => row.map((value, column) => value - weight * axis[index] * axis[column]));
    return { places: axis.map((value) => value * Math.sqrt(weight)), share: total ? weight / total : 0 };
  });
  const points = vectors.map((_, index) => components.map(({ places }) => places[index]));
  return { points, shares: components.map(({ share }) => share) };
}

// There are fewer texts than dimensions, so the products of texts are smaller than the covariance matrix.
function direction(products) {
  let axis = products.map((_, index) => Math.cos(index + 1));
  for (let step = 0; step < 60; step += 1) {
    const next = products.map((row) => dot(row, axis));
    const norm = length(next);
    if (norm < 1e-12) return next.map(() => 0);
    axis = next.map((value) => value / norm);
  }
  return axis;
}
