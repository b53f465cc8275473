// The sentence in pieces, and how the chosen piece becomes a vector.

function drawPieces(place, analysis, state, choose) {
  const sides = [
    ["encoder", say("The encoder reads"), analysis.sourceLabels, analysis.sourceIds],
    ["decoder", say("The decoder has said"), analysis.targetLabels, analysis.targetIds],
  ];
  fill(
    place,
    sides.map(([side, title, labels, ids]) =>
      element(
        "div",
        { class: "pieces", role: "group", "aria-label": say("{title}: pieces", { title }) },
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
                title: say("piece number {id} of the vocabulary, position {index}", { id: ids[index], index }),
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
    { name: say("Embedding"), of: say("row {id} of the table, × {scale}", { id: ids[position], scale: short(scale) }), row: parts.token, kind: "" },
    parts.position && { name: say("Position"), of: say("pattern of place {position}, from 0", { position }), row: parts.position, kind: "" },
    { name: "x", of: parts.position ? say("their sum: the stream begins") : say("the stream begins"), row: parts.sum, kind: "stream" },
  ].filter(Boolean);
  const largest = largestOf(rows.map(({ row }) => row));
  fill(
    place,
    element(
      "p",
      { class: "caption" },
      saying("The piece {piece} as {count} numbers: bars up are positive, bars down negative. Point at a bar, or use the arrow keys, to read its number. rms, the root mean square, is the size of a typical one.", {
        piece: element("b", { class: "piece" }, labels[position]),
        count: parts.sum.length,
      }),
    ),
    rows.map(({ name, of, row, kind }, index) =>
      element(
        "div",
        { class: "vector" },
        element("div", { class: "operation" }, element("b", {}, name), element("span", { class: "aside" }, of)),
        bars(row, { largest, label: say("{name} of {piece}", { name, piece: labels[position] }), key: `embedding-${index}`, kind }),
        element("div", { class: "measure" }, element("span", {}, "rms ", element("b", {}, short(rootMeanSquare([row]))))),
      ),
    ),
  );
}
