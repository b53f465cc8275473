// The beam: the hypotheses that were looked at, step by step, as a tree.

const NODE_STATES = { kept: toSay("kept"), finished: toSay("finished"), dropped: toSay("dropped") };

function drawBeam(place, analysis, state, chooseBeams) {
  const { hypotheses, steps } = analysis.beam(state.numBeams);
  const { model } = analysis;
  const text = (ids) => model.target.decode(ids) || say("(nothing)");
  const options = [1, 2, 3, 4, 5].map((count) =>
    element("option", { value: count, selected: count === state.numBeams }, count),
  );
  fill(
    place,
    element(
      "p",
      { class: "caption" },
      element(
        "label",
        {},
        say("Beams"),
        " ",
        element("select", { "data-focus": "beams", onchange: (event) => chooseBeams(Number(event.target.value)) }, options),
      ),
      " ",
      state.numBeams === 1
        ? say("Greedy search: at each step the most probable piece is taken.")
        : say("Beam search follows {count} beginnings of the translation at once. At each step it looks at the {twice} best continuations; the {count} best that do not end go on, pale ones are given up.", {
            count: state.numBeams,
            twice: 2 * state.numBeams,
          }),
    ),
    element(
      "p",
      { class: "caption" },
      say("The number in a box is the logarithm of the probability of all up to there: 0 is certain, −0.7 one in two, −2.3 one in ten."),
    ),
    element("div", { class: "scroll" }, beamTree(model, steps, hypotheses)),
    element("p", { class: "caption" }, scoreWords(model.length_penalty)),
    element(
      "ol",
      { class: "hypotheses" },
      hypotheses.map(({ ids, score }, index) =>
        element(
          "li",
          { class: index === 0 ? "best" : "" },
          element("span", {}, text(ids)),
          element("span", { class: "share" }, fixed(score)),
        ),
      ),
    ),
  );
}

function scoreWords({ name, alpha }) {
  if (!alpha) return say("The finished translations, by this logarithm:");
  const divisor = name === "gnmt" ? "(5 + n) / 6" : "n";
  return say("The finished translations, by their score: this logarithm, divided by a power ({power}) of {divisor} for n pieces, so that short ones have no advantage.", {
    power: short(alpha),
    divisor,
  });
}

function beamTree(model, steps, hypotheses) {
  const across = 118;
  const down = 27;
  const rows = Math.max(...steps.map((candidates) => candidates.length));
  const width = across * (steps.length + 1);
  const height = down * rows + 16;
  const best = new Set();
  for (let node = hypotheses[0]?.node; node; node = node.parent) best.add(node);
  const x = (node) => (node ? node.length * across + 8 : 8);
  const y = (node) => (node ? node.rank * down + 20 : 20);
  const classOf = (node) => `${node.state}${best.has(node) ? " best" : ""}`;
  const nodes = steps.flat().sort((a, b) => best.has(a) - best.has(b));
  const edges = nodes.map((node) => {
    const [fromX, fromY] = [x(node.parent) + (node.parent ? 82 : 66), y(node.parent)];
    const bend = (x(node) - fromX) / 2;
    return svg("path", {
      class: `edge ${classOf(node)}`,
      d: `M${fromX} ${fromY}C${fromX + bend} ${fromY} ${x(node) - bend} ${y(node)} ${x(node) - 3} ${y(node)}`,
    });
  });
  const cut = (label) => (label.length > 8 ? `${label.slice(0, 7)}…` : label);
  const labels = nodes.map((node) =>
    svg(
      "g",
      { class: `node ${classOf(node)}`, transform: `translate(${x(node)} ${y(node)})` },
      svg("rect", { x: -4, y: -11, width: 86, height: 22, rx: 5 }),
      svg("text", { x: 1, y: 4 }, cut(model.target.label(node.token))),
      svg("text", { class: "sum", x: 78, y: 4, "text-anchor": "end" }, fixed(node.sum, 1)),
      svg(
        "title",
        {},
        say("{piece}: log-probability {own}, in all {sum}, {state}", {
          piece: model.target.label(node.token),
          own: fixed(node.logP),
          sum: fixed(node.sum),
          state: say(NODE_STATES[node.state]),
        }),
      ),
    ),
  );
  return svg(
    "svg",
    {
      class: "tree",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      tabindex: 0,
      "data-focus": "tree",
      "aria-label": sentences(say("Tree of the beam, {count} steps.", { count: steps.length }), describeBeam(model, steps)),
    },
    svg("g", { class: "node root", transform: `translate(${x(null)} ${y(null)})` }, svg("rect", { x: -4, y: -11, width: 70, height: 22, rx: 5 }), svg("text", { x: 1, y: 4 }, say("(start)"))),
    edges,
    labels,
  );
}

function describeBeam(model, steps) {
  const said = steps.map((candidates, index) => {
    const kept = candidates.filter((node) => node.state !== "dropped");
    const named = kept.map((node) => `${model.target.label(node.token)} (${say(NODE_STATES[node.state])})`);
    return say("Step {number}: {pieces}.", { number: index + 1, pieces: named.join(", ") || say("none") });
  });
  return sentences(...said);
}
