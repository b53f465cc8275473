// The numbers of a sublayer over all positions, as keras_addnorm.diagnostics has them.

function rootMeanSquare(rows) {
  const count = rows.length * rows[0].length;
  return Math.sqrt(rows.reduce((sum, row) => sum + dot(row, row), 0) / count);
}

function cosine(a, b) {
  const lengths = Math.sqrt(dot(a, a) * dot(b, b));
  return lengths ? dot(a, b) / lengths : 0;
}

// The tensor that the sublayer itself makes.
function branchOf(sublayer) {
  const step = sublayer.steps.find((each) => each.operation === "sublayer");
  return sublayer.tensors[step.makes];
}

// What stands in a log of the training, of one sentence: all but the gradient.
function statisticsOf(sublayer) {
  const { x, y } = sublayer.tensors;
  const f = branchOf(sublayer);
  const residual = rootMeanSquare(x);
  const branch = rootMeanSquare(f);
  return {
    residual_rms: residual,
    branch_rms: branch,
    merged_rms: rootMeanSquare(y),
    residual_ratio: branch / residual,
    cosine: mean(x.map((row, i) => cosine(row, y[i]))),
  };
}
