// What a Transformer is made of, for one position at a time. A row is a Float32Array; sums are
// made in 64 bits. An array of weights is { shape, data }.

// row (N) times kernel (N, M), plus bias (M).
function project(row, kernel, bias) {
  const columns = kernel.shape[1];
  const sums = new Float64Array(columns);
  for (let i = 0; i < row.length; i++) {
    const value = row[i];
    const start = i * columns;
    for (let j = 0; j < columns; j++) sums[j] += value * kernel.data[start + j];
  }
  if (bias) for (let j = 0; j < columns; j++) sums[j] += bias.data[j];
  return Float32Array.from(sums);
}

// The dot product of a row with each row of a table (V, N), plus bias (V).
function projectOnTable(row, table, bias) {
  const [size, width] = table.shape;
  const result = new Float32Array(size);
  for (let v = 0; v < size; v++) {
    let sum = bias ? bias.data[v] : 0;
    for (let i = 0; i < width; i++) sum += row[i] * table.data[v * width + i];
    result[v] = sum;
  }
  return result;
}

function rowOf(table, index) {
  const width = table.shape[1];
  return table.data.slice(index * width, (index + 1) * width);
}

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

function plus(a, b) {
  return a.map((value, i) => value + b[i]);
}

// A row times a number, or times one number a channel.
function times(row, factor) {
  return typeof factor === "number" ? row.map((v) => v * factor) : row.map((v, i) => v * factor[i]);
}

function mean(row) {
  let sum = 0;
  for (const value of row) sum += value;
  return sum / row.length;
}

function softmax(logits) {
  const largest = Math.max(...logits);
  const weights = Array.from(logits, (value) => Math.exp(value - largest));
  const total = weights.reduce((sum, value) => sum + value, 0);
  return weights.map((value) => value / total);
}

function logSoftmax(logits) {
  let largest = -Infinity;
  for (const value of logits) if (value > largest) largest = value;
  let total = 0;
  for (const value of logits) total += Math.exp(value - largest);
  const shift = largest + Math.log(total);
  return Float32Array.from(logits, (value) => value - shift);
}

// Mean and variance of the numbers of one position, as a layer norm has them.
function moments(row) {
  const average = mean(row);
  let squares = 0;
  for (const value of row) squares += (value - average) ** 2;
  return { mean: average, variance: squares / row.length };
}

const NORMS = {
  layer_norm(row, norm) {
    const { mean, variance } = moments(row);
    const deviation = Math.sqrt(variance + norm.epsilon);
    return row.map((v, i) => ((v - mean) / deviation) * norm.gamma.data[i] + norm.beta.data[i]);
  },
  rms_norm(row, norm) {
    const root = Math.sqrt(dot(row, row) / row.length + norm.epsilon);
    return row.map((v, i) => (v / root) * norm.scale.data[i]);
  },
  scale_norm(row, norm) {
    const length = Math.max(Math.sqrt(dot(row, row)), norm.epsilon);
    return row.map((v) => (v / length) * norm.scale.data[0]);
  },
  std_layer_norm(row, norm) {
    const { mean, variance } = moments(row);
    const unbiased = Math.sqrt((variance * row.length) / (row.length - 1)) + norm.epsilon;
    return row.map((v, i) => ((v - mean) / unbiased) * norm.gamma.data[i] + norm.beta.data[i]);
  },
  dynamic_tanh(row, norm) {
    const alpha = norm.alpha.data[0];
    return row.map((v, i) => Math.tanh(alpha * v) * norm.gamma.data[i] + norm.beta.data[i]);
  },
  none(row) {
    return row;
  },
};

function normalize(row, norm) {
  return NORMS[norm.kind](row, norm);
}

function sigmoid(x) {
  return 1 / (1 + Math.exp(-x));
}

// Abramowitz and Stegun, 7.1.26: within 1.5e-7 of the error function.
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const series =
    t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(x) * (1 - series * Math.exp(-x * x));
}

const relu = (x) => Math.max(0, x);
const gelu = (x) => (x / 2) * (1 + erf(x / Math.SQRT2));
const silu = (x) => x * sigmoid(x);
const geluTanh = (x) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

// With a gate, the function acts on a second projection, which multiplies the first.
const ACTIVATIONS = {
  relu,
  gelu,
  silu,
  swish: silu,
  tanh: Math.tanh,
  sigmoid,
  linear: (x) => x,
  gelu_tanh: geluTanh,
  gelu_sigmoid: (x) => x * sigmoid(1.702 * x),
  glu: sigmoid,
  reglu: relu,
  geglu: gelu,
  geglu_tanh: geluTanh,
  swiglu: silu,
};
