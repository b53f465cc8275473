// Weights, from whole numbers of 16 bits and one factor a row.

function bytesOf(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer;
}

function readWeights(packed) {
  const numbers = new Int16Array(bytesOf(packed.numbers));
  const factors = new Float32Array(bytesOf(packed.factors));
  const arrays = new Map();
  let start = 0;
  let row = 0;
  for (const [name, shape] of packed.index) {
    const size = shape.reduce((product, length) => product * length, 1);
    const width = shape.length > 1 ? shape[shape.length - 1] : size;
    const data = new Float32Array(size);
    for (let i = 0; i < size; i++) data[i] = numbers[start + i] * factors[row + Math.floor(i / width)];
    arrays.set(name, { shape, data });
    start += size;
    row += size / width;
  }
  return arrays;
}
