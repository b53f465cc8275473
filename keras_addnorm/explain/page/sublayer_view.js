// One sublayer by hand: the figure of the paper with the numbers of the chosen piece.

function drawSublayer(place, analysis, state, choose, chooseChannel) {
  const [side, layer] = state.sublayer.split("/");
  const trace = analysis.traces[side].sublayers.find((each) => each.name === state.sublayer);
  const position = state.positions[side];
  const labels = side === "encoder" ? analysis.sourceLabels : analysis.targetLabels;
  const rowOfTensor = (tensor) => trace.tensors[tensor][position];
  const largest = largestOf(Object.keys(trace.tensors).map(rowOfTensor));
  const rows = [
    { tensor: "x", words: streamWords(), kind: "stream", symbol: "x" },
    ...trace.steps.map((step) => ({
      tensor: step.makes,
      step,
      words: wordsOf(step, trace),
      kind: kindOf(step),
      symbol: symbolOf(step, trace),
      before: step.operation === "sublayer" ? null : rowOfTensor(step.reads[0]),
    })),
  ];
  const lanes = lanesOf(trace.steps);
  const says = element("p", { class: "says", "aria-live": "polite" });
  const point = (tensor) => {
    for (const each of place.querySelectorAll("[data-tensor]")) {
      each.classList.toggle("lit", each.dataset.tensor === tensor);
    }
    says.textContent = rows.find((row) => row.tensor === tensor)?.words.says ?? "";
  };
  const step = (by, label, arrow) =>
    element(
      "button",
      {
        type: "button",
        class: "quiet",
        "data-focus": `step-${by}`,
        "aria-label": label,
        onclick: () => choose(neighbour(analysis, state.sublayer, by)),
      },
      arrow,
    );
  fill(
    place,
    element(
      "div",
      { class: "figure-head" },
      element(
        "div",
        {},
        element("p", { class: "eyebrow" }, say("{side} · layer {layer}", { side: say(SIDES[side]), layer: Number(layer) + 1 })),
        element("h3", {}, say("{sublayer} and its Add & Norm", { sublayer: say(SUBLAYERS[trace.kind]) })),
        element("p", { class: "caption" }, saying("at the piece {piece}", { piece: element("b", { class: "piece" }, labels[position]) })),
      ),
      element("div", { class: "steps" }, step(-1, say("The previous sublayer"), "←"), step(1, say("The next sublayer"), "→")),
    ),
    element(
      "div",
      { class: "figure-body" },
      formulaTerms(trace, point),
      says,
      element(
        "div",
        { class: "flow" },
        rows.map((row, index) =>
          element(
            "div",
            {
              class: `flow-row ${row.kind}`,
              "data-tensor": row.tensor,
              onmouseenter: () => point(row.tensor),
              onfocusin: () => point(row.tensor),
            },
            element("span", { class: `lane ${lanes[index]}`, "aria-hidden": "true" }),
            element(
              "div",
              { class: "operation" },
              element("b", {}, row.words.name),
              element("span", { class: "symbol" }, row.symbol),
            ),
            bars(rowOfTensor(row.tensor), {
              largest,
              label: `${row.words.name}, ${row.symbol}`,
              key: `flow-${row.tensor}`,
              before: row.before,
              kind: row.kind,
              marked: state.channel,
              choose: chooseChannel,
            }),
            element("div", { class: "measure" }, measureOf(row, rowOfTensor)),
          ),
        ),
      ),
      byHand(rows, trace, rowOfTensor, state, chooseChannel),
    ),
    lanes.includes("none") ? element("p", { class: "warning" }, say("There is no skip: what F does not pass on is gone.")) : null,
    trace.kind === "feed_forward" ? hiddenUnits(trace, position) : null,
    allNumbers(rows, rowOfTensor, state),
  );
  const pointed = trace.steps.findLast((each) => each.operation === state.pointed);
  point(pointed?.makes ?? "y");
}

// A short name of what a step makes, in terms of x and F.
function symbolOf(step, trace) {
  const made = new Map(trace.steps.map((each) => [each.makes, each]));
  const of = (tensor) => (made.has(tensor) ? symbolOf(made.get(tensor), trace) : "x");
  const [first, second] = step.reads.map(of);
  return {
    norm: () => `${NORM_SYMBOLS[trace.parts[step.weight].kind]}(${first.length > 12 ? "…" : first})`,
    sublayer: () => (first === "x" ? "F(x)" : `F(${first})`),
    scale: () => `${step.symbol} ${first}`,
    gate: () => `G(${first.length > 12 ? "…" : first})`,
    add: () => `${first} + ${second}`,
    remove_parallel: () => `${first} ⊥ x`,
  }[step.operation]();
}

function kindOf(step) {
  if (step.operation === "sublayer") return "branch";
  if (step.operation === "add") return "sum";
  return step.makes === "y" ? "stream" : "";
}

// Where the skip runs beside the rows: it starts at x and ends at the sum.
function lanesOf(steps) {
  const end = steps.findIndex((step) => step.operation === "add");
  if (end < 0) return ["none", ...steps.map(() => "")];
  return ["start", ...steps.map((_, index) => (index < end ? "through" : index === end ? "end" : ""))];
}

function measureOf({ tensor, step }, rowOfTensor) {
  const row = rowOfTensor(tensor);
  const size = (each) => Math.sqrt(dot(each, each));
  const lines = [["rms", rootMeanSquare([row])]];
  if (step?.operation === "norm") {
    const { mean, variance } = moments(rowOfTensor(step.reads[0]));
    lines.push(["μ", mean], ["σ", Math.sqrt(variance)]);
  }
  if (step?.operation === "sublayer") lines.push(["‖F‖/‖x‖", size(row) / size(rowOfTensor("x"))]);
  if (tensor === "y") lines.push(["cos(x, y)", cosine(rowOfTensor("x"), row)]);
  return lines.map(([name, value]) => element("span", {}, `${name} `, element("b", {}, short(value))));
}

function hiddenUnits(trace, position) {
  const hidden = trace.hidden[position];
  const active = hidden.filter((value) => value > 0).length;
  return element(
    "div",
    { class: "vector hidden-units" },
    element(
      "div",
      { class: "operation" },
      element("b", {}, say("Inside F")),
      element("span", { class: "aside" }, say("{count} hidden units, {active} above zero", { count: hidden.length, active })),
    ),
    bars(hidden, { largest: largestOf([hidden]), label: say("Hidden units of the feed-forward"), key: "hidden" }),
    element("div", { class: "measure" }, element("span", {}, trace.sublayer.activation)),
  );
}

function allNumbers(rows, rowOfTensor, state) {
  const table = () =>
    element(
      "table",
      {},
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, say("channel")), rows.map(({ symbol }) => element("th", { scope: "col" }, symbol)))),
      element(
        "tbody",
        {},
        Array.from(rowOfTensor("x"), (_, channel) =>
          element(
            "tr",
            {},
            element("th", { scope: "row" }, channel + 1),
            rows.map(({ tensor }) => element("td", {}, fixed(rowOfTensor(tensor)[channel], 3))),
          ),
        ),
      ),
    );
  const box = element("div", { class: "scroll numbers", tabindex: 0, role: "region", "aria-label": say("All numbers of this sublayer") });
  const details = element(
    "details",
    {
      open: state.numbersAreOpen,
      ontoggle: () => {
        state.numbersAreOpen = details.open;
        box.replaceChildren(...(details.open ? [table()] : []));
      },
    },
    element("summary", { "data-focus": "all-numbers" }, say("All numbers")),
    box,
  );
  if (state.numbersAreOpen) box.append(table());
  return details;
}

// The numbers beside the bars, in words.
const READING = toSay(
  "rms: root mean square, the size of a typical number. ‖F‖/‖x‖: the length of F(x) over that of x. μ and σ: mean and standard deviation of what the norm reads. cos(x, y): 1 if y points where x points, 0 if they have nothing in common.",
);

// One of the numbers, worked out step by step.
function byHand(rows, trace, rowOfTensor, state, choose) {
  const at = state.channel;
  const valueOf = (tensor) => rowOfTensor(tensor)[at];
  const count = rowOfTensor("x").length;
  return element(
    "div",
    { class: "by-hand" },
    element("p", { class: "caption" }, say(READING)),
    element(
      "label",
      { class: "slider" },
      element("b", {}, say("By hand")),
      ` ${say("number")} `,
      element("input", {
        type: "range",
        min: 1,
        max: count,
        value: at + 1,
        "data-focus": "channel",
        "aria-valuetext": say("number {number} of {count}", { number: at + 1, count }),
        oninput: (event) => choose(Number(event.target.value) - 1),
      }),
      element("output", {}, say("{number} of {count}", { number: at + 1, count })),
    ),
    element(
      "ol",
      { class: "worked" },
      rows.map(({ symbol, step }) =>
        element(
          "li",
          {},
          element("span", { class: "symbol" }, `${symbol} = `),
          step ? worked(step, trace, valueOf, rowOfTensor, at) : fixed(valueOf("x")),
        ),
      ),
    ),
  );
}

// What a step does to one number. Rounded, so that the last digit may seem to be off by one.
function worked(step, trace, valueOf, rowOfTensor, at) {
  const part = trace.parts[step.weight];
  const [first, second] = step.reads.map(valueOf);
  const signed = (value) => (value < 0 ? `− ${fixed(-value)}` : `+ ${fixed(value)}`);
  const bracketed = (value) => (value < 0 ? `(${fixed(value)})` : fixed(value));
  const result = fixed(valueOf(step.makes));
  const row = rowOfTensor(step.reads[0]);
  const norms = {
    layer_norm() {
      const { mean, variance } = moments(row);
      const top = `(${fixed(first)} ${signed(-mean)})`;
      return `${top} / √(${fixed(Math.sqrt(variance))}² + ${short(part.epsilon)}) × ${bracketed(part.gamma.data[at])} ${signed(part.beta.data[at])} = ${result}`;
    },
    rms_norm: () => `${fixed(first)} / √(${fixed(rootMeanSquare([row]))}² + ${short(part.epsilon)}) × ${bracketed(part.scale.data[at])} = ${result}`,
  };
  return {
    norm: () => norms[part.kind]?.() ?? result,
    sublayer: () =>
      trace.kind === "feed_forward"
        ? say("{result}, from all numbers of this piece", { result })
        : say("{result}, from all numbers of all pieces that it looks at", { result }),
    scale: () => `${fixed(step.number ?? (part.shape.length ? part.data[at] : part.data[0]))} × ${bracketed(first)} = ${result}`,
    gate: () => `${fixed(1 - silu(part.data[0]))} × ${bracketed(first)} = ${result}`,
    add: () => `${fixed(first)} ${signed(second)} = ${result}`,
    remove_parallel: () => result,
  }[step.operation]();
}
