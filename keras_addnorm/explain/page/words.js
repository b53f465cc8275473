// What the page calls things, and what it says of them.

const SUBLAYERS = {
  self_attention: toSay("Self-attention"),
  cross_attention: toSay("Cross-attention"),
  feed_forward: toSay("Feed-forward"),
};

const SIDES = { encoder: toSay("Encoder"), decoder: toSay("Decoder") };

const NORM_SYMBOLS = {
  layer_norm: "LN",
  rms_norm: "RMS",
  scale_norm: "ScaleNorm",
  std_layer_norm: "LN",
  dynamic_tanh: "tanh",
  none: "id",
};

const NORM_WORDS = {
  layer_norm: toSay(
    "Layer norm: of the numbers of this one piece, take off their mean μ and divide by √(σ² + ε), where σ is their standard deviation and ε is tiny; then times γ, plus β, both learned. (Thin lines: before the norm.) It looks at no other piece and no other sentence, so it does the same in training and in use.",
  ),
  rms_norm: toSay(
    "RMS norm: divide by the root mean square of the numbers of this piece; then times a learned gain. No mean is taken off.",
  ),
  scale_norm: toSay(
    "ScaleNorm: bring this piece's vector to one learned length.",
  ),
  std_layer_norm: toSay(
    "Layer norm as some tutorials write it: divided by (σ + ε), with the unbiased σ. Nearly the same as √(σ² + ε) for wide vectors.",
  ),
  dynamic_tanh: toSay(
    "Dynamic tanh: squash each number by itself, instead of a norm.",
  ),
  none: toSay(
    "The identity in the place of a norm.",
  ),
};

// Of each step: its name, and what it does for a learner. `sublayer` is described as in the page's data.
const STEP_WORDS = {
  norm(step, { parts }) {
    const kind = parts[step.weight].kind;
    return { name: kind.includes("layer_norm") ? say("Norm") : kind.replaceAll("_", " "), says: say(NORM_WORDS[kind] ?? "") };
  },
  sublayer(step, { kind }) {
    const does = {
      self_attention: toSay("It looks at the other pieces and brings what they say."),
      cross_attention: toSay("It looks at the encoder's output: at the words that are translated."),
      feed_forward: toSay("It looks at this piece alone: a first matrix makes the row wider, an activation acts on each number, a second matrix makes it narrow again."),
    };
    return {
      name: say(SUBLAYERS[kind]),
      says: say("F, the sublayer. {does} With a skip, F(x) is not a new vector: it is a difference, what has to change in x.", {
        does: say(does[kind]),
      }),
    };
  },
  scale(step, { parts }) {
    if (step.makes === "read") {
      return { name: "× 1/√l", says: say("A fixed factor of {number}: deeper layers read a smaller stream.", { number: short(step.number) }) };
    }
    const onSkip = step.reads[0] === "x" || step.makes.endsWith("_x");
    if (step.number !== null) {
      return {
        name: `× ${step.symbol}`,
        says: say("α = {number}: the skip counts for more than the branch, so that a deep stack changes slowly. The number follows from the depth.", {
          number: short(step.number),
        }),
      };
    }
    const { shape, data } = parts[step.weight];
    const now = shape.length
      ? say("from {low} to {high}", { low: short(Math.min(...data)), high: short(Math.max(...data)) })
      : short(data[0]);
    return {
      name: `× ${step.symbol}`,
      says: onSkip
        ? say("A learned factor on the skip, now {now}. It says how much of the old stream stays.", { now })
        : say("A learned factor on the branch, now {now}. Near zero the layer is the identity: F need not learn to do nothing.", { now }),
    };
  },
  gate(step, { parts }) {
    const kept = 1 - silu(parts[step.weight].data[0]);
    return {
      name: say("× gate"),
      says: say("A learned gate scales the stream by {kept}; gradients pass as if it were not there.", { kept: short(kept) }),
    };
  },
  add(step) {
    return {
      name: say("Add"),
      says:
        step.reads[0] === "normed"
          ? say("Add: the normed stream and what the sublayer says.")
          : say("Add: grey is x, colour what F(x) adds or takes, the thick line their sum. What x knew is kept, unless F takes it away. And on the way back, ∂(x + F(x))/∂x = 1 + ∂F/∂x: through the 1, the gradient passes the sum undiminished. Adding, not concatenating: the row does not get wider."),
    };
  },
  remove_parallel() {
    return {
      name: say("Turn"),
      says: say("Only the part of F(x) at a right angle to x is kept: it can turn the stream, never shorten it."),
    };
  },
};

function wordsOf(step, sublayer) {
  return STEP_WORDS[step.operation](step, sublayer);
}

function streamWords() {
  return {
    name: say("Stream"),
    says: say("x, the residual stream: the numbers that stand for this piece here. With the add, no sublayer computes them anew; each only adds to them."),
  };
}

function lossWords(model) {
  const loss = model?.validation_loss ?? null;
  return loss === null ? null : fixed(loss, 3);
}

const CHARTS = [
  {
    key: "merged_rms",
    title: toSay("Size of the stream"),
    unit: toSay("root mean square of its numbers, after each sublayer"),
  },
  { key: "residual_ratio", title: "‖F(x)‖ / ‖x‖", unit: toSay("length of what a sublayer computes, over that of x") },
  { key: "cosine", title: "cos(x, y)", unit: toSay("1: y points where x points; 0: nothing in common") },
  { key: "gradient_norm", title: toSay("Gradient at x"), unit: toSay("length of the loss's gradient at the stream") },
];
