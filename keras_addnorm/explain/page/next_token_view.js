// What the decoder would say next, behind the chosen piece of the target.

function drawNextToken(place, analysis, state) {
  const { model } = analysis;
  const position = state.positions.decoder;
  const shares = softmax(analysis.logits[position]);
  const ranked = shares.map((share, id) => [share, id]).sort((a, b) => b[0] - a[0]).slice(0, 10);
  const said = analysis.targetLabels.slice(0, position + 1).join(" ").replaceAll("·", "");
  const label = (id) => model.target.label(id);
  fill(
    place,
    element("p", { class: "caption" }, "Having read ", element("b", { class: "piece" }, said), " the decoder expects:"),
    element(
      "ol",
      { class: "next", "aria-label": "The ten most probable pieces" },
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
