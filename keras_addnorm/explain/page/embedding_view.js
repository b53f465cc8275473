// The sentence in pieces, and how the chosen piece becomes a vector.

function drawPieces(place, analysis, state, choose) {
  const sides = [
    ["encoder", "The encoder reads", analysis.sourceLabels, analysis.sourceIds],
    ["decoder", "The decoder has said", analysis.targetLabels, analysis.targetIds],
  ];
  fill(
    place,
    sides.map(([side, title, labels, ids]) =>
      element(
        "div",
        { class: "pieces", role: "group", "aria-label": `${title}: pieces` },
        element("h3", {}, title),
        element(
          "div",
          { class: "chips" },
          labels.map((label, index) => {
            const isChosen = state.side === side && state.positions[side] === index;
            return element(
              "button",
              {
                type: "button",
                class: "chip",
                "aria-pressed": isChosen,
                "data-focus": `piece-${side}-${index}`,
                title: `piece number ${ids[index]} of the vocabulary, position ${index}`,
                onclick: () => choose(side, index),
              },
              element("span", { class: "piece" }, label),
              element("span", { class: "id" }, ids[index]),
            );
          }),
        ),
      ),
    ),
  );
}

function drawEmbedding(place, analysis, state) {
  const { side } = state;
  const position = state.positions[side];
  const trace = analysis.traces[side];
  const parts = trace.embeddings[position];
  const labels = side === "encoder" ? analysis.sourceLabels : analysis.targetLabels;
  const ids = side === "encoder" ? analysis.sourceIds : analysis.targetIds;
  const scale = analysis.model[side].embedding.scale;
  const rows = [
    { name: "Embedding", of: `row ${ids[position]} of the table, × ${short(scale)}`, row: parts.token, kind: "" },
    parts.position && { name: "Position", of: `pattern of place ${position}, from 0`, row: parts.position, kind: "" },
    { name: "x", of: parts.position ? "their sum: the stream begins" : "the stream begins", row: parts.sum, kind: "stream" },
  ].filter(Boolean);
  const largest = largestOf(rows.map(({ row }) => row));
  fill(
    place,
    element("p", { class: "caption" }, "The piece ", element("b", { class: "piece" }, labels[position]), ` as ${parts.sum.length} numbers: bars up are positive, bars down negative. Point at a bar, or use the arrow keys, to read its number. rms, the root mean square, is the size of a typical one.`),
    rows.map(({ name, of, row, kind }, index) =>
      element(
        "div",
        { class: "vector" },
        element("div", { class: "operation" }, element("b", {}, name), element("span", { class: "aside" }, of)),
        bars(row, { largest, label: `${name} of ${labels[position]}`, key: `embedding-${index}`, kind }),
        element("div", { class: "measure" }, element("span", {}, "rms ", element("b", {}, short(rootMeanSquare([row]))))),
      ),
    ),
  );
}
