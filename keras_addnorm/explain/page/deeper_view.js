// Stacks of any depth with random weights: what becomes of the stream with and without add and norm.

const MOST_DEPTH = 64;
const DEEPER_WIDTH = 32;
const DEEPER_ROWS = 16;

// `f` is F of what the scheme reads; no norm here has learned anything.
const DEEPER_SCHEMES = [
  { name: "Post-LN", hasBoth: true, next: (x, f) => unitNorm(plus(x, f(x))) },
  { name: "Pre-LN", hasBoth: true, next: (x, f) => plus(x, f(unitNorm(x))) },
  { name: toSay("no norm"), hasBoth: false, next: (x, f) => plus(x, f(x)) },
  { name: toSay("no add"), hasBoth: false, next: (x, f) => unitNorm(f(x)) },
];

const DEEPER_CHARTS = [
  { key: "size", title: toSay("Size of the stream"), unit: toSay("root mean square of its numbers, after each sublayer") },
  { key: "left", title: toSay("What is left of x"), unit: toSay("cosine between the stream here and x at the bottom: 1 all, 0 nothing") },
];

function unitNorm(row) {
  const { mean, variance } = moments(row);
  return row.map((value) => (value - mean) / Math.sqrt(variance + 1e-6));
}

// Mulberry32: the same numbers in every browser.
function randomNumbers(seed) {
  let state = seed;
  const uniform = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

// A feed-forward with random weights, which hands on the size of what it reads, in the mean.
function randomFeedForward(normal) {
  const [width, hidden] = [DEEPER_WIDTH, 2 * DEEPER_WIDTH];
  const matrix = (rows, columns, size) =>
    Array.from({ length: rows }, () => Float64Array.from({ length: columns }, () => size * normal()));
  const first = matrix(hidden, width, Math.sqrt(2 / width));
  const second = matrix(width, hidden, Math.sqrt(1 / hidden));
  return (h) => {
    const inside = first.map((row) => relu(dot(row, h)));
    return Float64Array.from(second, (row) => dot(row, inside));
  };
}

// By scheme: { size, left }, each with a number a depth, from none to MOST_DEPTH.
function deeperSeries() {
  const normal = randomNumbers(7);
  const start = Array.from({ length: DEEPER_ROWS }, () => Float64Array.from({ length: DEEPER_WIDTH }, normal));
  const sublayers = Array.from({ length: MOST_DEPTH }, () => randomFeedForward(normal));
  return DEEPER_SCHEMES.map((scheme) => {
    let rows = start;
    const sizes = [rootMeanSquare(rows)];
    const left = [1];
    for (const sublayer of sublayers) {
      rows = rows.map((row) => scheme.next(row, sublayer));
      sizes.push(rootMeanSquare(rows));
      left.push(mean(rows.map((row, i) => cosine(start[i], row))));
    }
    return { ...scheme, size: sizes, left };
  });
}

let deeper = null;

function drawDeeper(place, state, change) {
  deeper ??= deeperSeries();
  const { depth } = state;
  fill(
    place,
    element(
      "div",
      { class: "controls" },
      element(
        "label",
        { class: "slider" },
        say("Sublayers"),
        " ",
        element("input", {
          type: "range",
          min: 2,
          max: MOST_DEPTH,
          value: depth,
          "data-focus": "deeper-slider",
          "aria-valuetext": say("{count} sublayers", { count: depth }),
          oninput: (event) => change(Number(event.target.value)),
        }),
        element("output", { id: "deeper-depth" }, depth),
      ),
    ),
    element("div", { class: "charts" }, DEEPER_CHARTS.map((chart) => deeperChart(chart, depth))),
  );
}

function deeperChart({ key, title, unit }, depth) {
  const drawn = deeper.map(({ name, hasBoth, [key]: all }) => ({ name, hasBoth, values: all.slice(0, depth + 1) }));
  const scale = scaleOf(drawn.flatMap(({ values }) => values), key === "left" ? "cosine" : key, Infinity);
  const { width, height, left, right, bottom } = chartBox();
  const x = (i) => left + (i / depth) * (width - left - right);
  const y = (value) => 8 + (1 - scale.at(value)) * (height - bottom - 8);
  const ends = drawn.map(({ name, values }) => ({ name: say(name), x: x(depth), y: y(values[depth]) }));
  const said = drawn.map(({ name, values }) =>
    say("{name}: {value} after {count} sublayers.", { name: say(name), value: short(values[depth]), count: depth }),
  );
  const path = (values) => `M${values.map((value, i) => `${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("L")}`;
  return element(
    "figure",
    { class: "chart", "data-key": `deeper-${key}` },
    chartCaption(title, unit, scale),
    svg(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "data-focus": `deeper-${key}`, "aria-label": sentences(say("{title} by depth, random weights.", { title: say(title) }), ...said) },
      gridOf(scale, y),
      svg("text", { class: "tick", x: left + (width - left - right) / 2, y: height - 8, "text-anchor": "middle" }, say("from the bottom to sublayer {depth} →", { depth })),
      drawn.map(({ name, hasBoth, values }) =>
        svg("path", { class: `line ${hasBoth ? "both" : "without"}`, d: path(values) }, svg("title", {}, say(name))),
      ),
      endLabels(ends),
    ),
  );
}
