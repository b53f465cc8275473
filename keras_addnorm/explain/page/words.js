// What the page calls things, and what it says of them.

const SUBLAYERS = {
  self_attention: "Self-attention",
  cross_attention: "Cross-attention",
  feed_forward: "Feed-forward",
};

const SIDES = { encoder: "Encoder", decoder: "Decoder" };

const NORM_SYMBOLS = {
  layer_norm: "LN",
  rms_norm: "RMS",
  scale_norm: "ScaleNorm",
  std_layer_norm: "LN",
  dynamic_tanh: "tanh",
  none: "id",
};

const NORM_WORDS = {
  layer_norm:
    "Layer norm: of the numbers of this one piece, take off their mean μ and divide by √(σ² + ε), where σ is their standard deviation and ε is tiny; then times γ, plus β, both learned. (Thin lines: before the norm.) It looks at no other piece and no other sentence, so it does the same in training and in use.",
  rms_norm: "RMS norm: divide by the root mean square of the numbers of this piece; then times a learned gain. No mean is taken off.",
  scale_norm: "ScaleNorm: bring this piece's vector to one learned length.",
  std_layer_norm:
    "Layer norm as some tutorials write it: divided by (σ + ε), with the unbiased σ. Nearly the same as √(σ² + ε) for wide vectors.",
  dynamic_tanh: "Dynamic tanh: squash each number by itself, instead of a norm.",
  none: "The identity in the place of a norm.",
};

// Of each step: its name, and what it does for a learner. `sublayer` is described as in the page's data.
const STEP_WORDS = {
  norm(step, { parts }) {
    const kind = parts[step.weight].kind;
    return { name: kind.includes("layer_norm") ? "Norm" : kind.replaceAll("_", " "), says: NORM_WORDS[kind] };
  },
  sublayer(step, { kind }) {
    const does = {
      self_attention: "It looks at the other pieces and brings what they say.",
      cross_attention: "It looks at the encoder's output: at the words that are translated.",
      feed_forward: "It looks at this piece alone: a first matrix makes the row wider, an activation acts on each number, a second matrix makes it narrow again.",
    };
    return {
      name: SUBLAYERS[kind],
      says: `F, the sublayer. ${does[kind]} With a skip, F(x) is not a new vector: it is a difference, what has to change in x.`,
    };
  },
  scale(step, { parts }) {
    if (step.makes === "read") {
      return { name: "× 1/√l", says: `A fixed factor of ${short(step.number)}: deeper layers read a smaller stream.` };
    }
    const onSkip = step.reads[0] === "x" || step.makes.endsWith("_x");
    if (step.number !== null) {
      return {
        name: `× ${step.symbol}`,
        says: `α = ${short(step.number)}: the skip counts for more than the branch, so that a deep stack changes slowly. The number follows from the depth.`,
      };
    }
    const { shape, data } = parts[step.weight];
    const now = shape.length ? `from ${short(Math.min(...data))} to ${short(Math.max(...data))}` : short(data[0]);
    return {
      name: `× ${step.symbol}`,
      says: `A learned factor on the ${onSkip ? "skip" : "branch"}, now ${now}. ${
        onSkip ? "It says how much of the old stream stays." : "Near zero the layer is the identity: F need not learn to do nothing."
      }`,
    };
  },
  gate(step, { parts }) {
    const kept = 1 - silu(parts[step.weight].data[0]);
    return { name: "× gate", says: `A learned gate scales the stream by ${short(kept)}; gradients pass as if it were not there.` };
  },
  add(step) {
    return {
      name: "Add",
      says:
        step.reads[0] === "normed"
          ? "Add: the normed stream and what the sublayer says."
          : "Add: grey is x, colour what F(x) adds or takes, the thick line their sum. What x knew is kept, unless F takes it away. And on the way back, ∂(x + F(x))/∂x = 1 + ∂F/∂x: through the 1, the gradient passes the sum undiminished. Adding, not concatenating: the row does not get wider.",
    };
  },
  remove_parallel() {
    return { name: "Turn", says: "Only the part of F(x) at a right angle to x is kept: it can turn the stream, never shorten it." };
  },
};

function wordsOf(step, sublayer) {
  return STEP_WORDS[step.operation](step, sublayer);
}

const STREAM_WORDS = {
  name: "Stream",
  says: "x, the residual stream: the numbers that stand for this piece here. With the add, no sublayer computes them anew; each only adds to them.",
};

function lossWords(model) {
  const loss = model?.validation_loss ?? null;
  return loss === null ? null : fixed(loss, 3);
}

const CHARTS = [
  {
    key: "merged_rms",
    title: "Size of the stream",
    unit: "root mean square of its numbers, after each sublayer",
  },
  { key: "residual_ratio", title: "‖F(x)‖ / ‖x‖", unit: "length of what a sublayer computes, over that of x" },
  { key: "cosine", title: "cos(x, y)", unit: "1: y points where x points; 0: nothing in common" },
  { key: "gradient_norm", title: "Gradient at x", unit: "length of the loss's gradient at the stream" },
];
