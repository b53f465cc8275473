// Where each head of the chosen sublayer looks: rows look at columns.

function drawAttention(place, analysis, state) {
  const [side] = state.sublayer.split("/");
  const trace = analysis.traces[side].sublayers.find((each) => each.name === state.sublayer);
  if (trace.kind === "feed_forward") {
    fill(
      place,
      element("p", { class: "caption" }, say("The feed-forward looks at no other piece. Choose an attention on the map to see where its heads look.")),
    );
    return;
  }
  const queries = side === "encoder" ? analysis.sourceLabels : analysis.targetLabels;
  const keys = trace.kind === "self_attention" ? queries : analysis.sourceLabels;
  const chosen = state.positions[side];
  const numHeads = trace.attention[0].length;
  fill(
    place,
    element(
      "p",
      { class: "caption" },
      sentences(
        say("{side}, layer {layer}, {sublayer}. Each row is a piece that looks, each column one that is looked at; the stronger the colour, the larger the weight, and the weights of a row add up to 1.", {
          side: say(SIDES[side]),
          layer: Number(state.sublayer.split("/")[1]) + 1,
          sublayer: say(SUBLAYERS[trace.kind]).toLowerCase(),
        }),
        trace.kind === "self_attention" && side === "decoder"
          ? say("What comes later cannot be looked at: it has not been said yet.")
          : "",
        say("Point at a cell, or use the arrow keys, to read it. Nothing makes heads learn different things, and a large weight is no proof that a piece matters."),
      ),
    ),
    element(
      "div",
      { class: "heads" },
      Array.from({ length: numHeads }, (_, head) => {
        const weights = trace.attention.map((each) => each[head]);
        return element(
          "figure",
          { class: "head" },
          element("figcaption", {}, say("Head {number}", { number: head + 1 })),
          element("div", { class: "scroll" }, heatMap(weights, queries, keys, chosen, head)),
        );
      }),
    ),
  );
}

function heatMap(weights, queries, keys, chosen, head) {
  const cell = 22;
  const longest = (labels) => Math.max(...labels.map((label) => label.length));
  const left = 12 + 7.2 * Math.min(12, longest(queries));
  const top = 12 + 6 * Math.min(12, longest(keys));
  const width = left + cell * keys.length + 30;
  const height = top + cell * queries.length + 4;
  const cut = (label) => (label.length > 12 ? `${label.slice(0, 11)}…` : label);
  const note = svg("text", { class: "note", x: 2, y: 12 });
  const cursor = svg("rect", { class: "cell-cursor", width: cell, height: cell, rx: 4, hidden: true });
  let at = null;
  const show = (i, j) => {
    at = [i, j];
    note.textContent = `${queries[i]} → ${keys[j]}: ${fixed(weights[i][j] ?? 0)}`;
    cursor.removeAttribute("hidden");
    cursor.setAttribute("x", left + j * cell);
    cursor.setAttribute("y", top + i * cell);
  };
  const move = (event) => {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!by) return;
    event.preventDefault();
    const inside = (value, count) => Math.max(0, Math.min(count - 1, value));
    if (at) show(inside(at[0] + by[0], queries.length), inside(at[1] + by[1], keys.length));
    else show(chosen, 0);
  };
  const cells = weights.flatMap((row, i) =>
    row.map((weight, j) =>
      svg(
        "rect",
        {
          x: left + j * cell + 1,
          y: top + i * cell + 1,
          width: cell - 2,
          height: cell - 2,
          rx: 3,
          class: "cell",
          style: `--weight:${weight.toFixed(3)}`,
          onmouseenter: () => show(i, j),
        },
        svg("title", {}, say("{query} looks at {key}: {weight}", { query: queries[i], key: keys[j], weight: fixed(weight) })),
      ),
    ),
  );
  return svg(
    "svg",
    {
      class: "heat",
      style: `width: 100%; min-width: ${Math.round(0.62 * width)}px; max-width: ${Math.round(1.25 * width)}px`,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      tabindex: 0,
      "data-focus": `heat-${head}`,
      onkeydown: move,
      "aria-label": sentences(`${say("Head {number}", { number: head + 1 })}.`, describeHead(weights, queries, keys)),
    },
    note,
    keys.map((key, j) =>
      svg("text", { class: "tick", transform: `translate(${left + (j + 0.6) * cell} ${top - 4}) rotate(-52)` }, cut(key)),
    ),
    queries.map((query, i) =>
      svg(
        "text",
        { class: `tick${i === chosen ? " chosen" : ""}`, x: left - 6, y: top + (i + 0.68) * cell, "text-anchor": "end" },
        cut(query),
      ),
    ),
    cells,
    svg("rect", {
      class: "frame",
      x: left,
      y: top + chosen * cell,
      width: cell * keys.length,
      height: cell,
      rx: 4,
    }),
    cursor,
  );
}

function describeHead(weights, queries, keys) {
  const said = weights.map((row, i) => {
    const best = row.indexOf(Math.max(...row));
    return say("{query} looks most at {key}, {weight}.", { query: queries[i], key: keys[best], weight: fixed(row[best]) });
  });
  return sentences(...said);
}
