// What the decoder would say next, after the chosen piece of the target.

function drawNextToken(place, analysis, state, choose) {
  const { model } = analysis;
  const position = state.positions.decoder;
  const shares = softmax(analysis.logits[position]);
  const ranked = shares.map((share, id) => [share, id]).sort((a, b) => b[0] - a[0]).slice(0, 10);
  const said = analysis.targetLabels.slice(0, position + 1).join(" ").replaceAll("·", "");
  const label = (id) => model.target.label(id);
  const step = (by, name, arrow) =>
    element(
      "button",
      {
        type: "button",
        class: "quiet",
        "data-focus": `next-${by}`,
        "aria-label": name,
        onclick: () => choose(Math.max(0, Math.min(analysis.targetIds.length - 1, position + by))),
      },
      arrow,
    );
  fill(
    place,
    element(
      "div",
      { class: "figure-head" },
      element(
        "p",
        { class: "caption" },
        saying("What comes after {piece}? The probability of each piece; the coloured one was taken:", {
          piece: element("b", { class: "piece" }, said),
        }),
      ),
      element("div", { class: "steps" }, step(-1, say("One piece less"), "←"), step(1, say("One piece more"), "→")),
    ),
    element(
      "ol",
      { class: "next", "aria-label": say("The ten most probable pieces") },
      ranked.map(([share, id]) =>
        element(
          "li",
          { class: id === analysis.nextIds[position] ? "taken" : "" },
          element("span", { class: "piece" }, label(id)),
          element("span", { class: "track" }, element("span", { class: "fill", style: `--share:${share.toFixed(4)}` })),
          element("span", { class: "share" }, percent(share)),
        ),
      ),
    ),
  );
}
