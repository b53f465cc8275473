// The map: both stacks from bottom to top, with the stream beside them as wide as it is large.

function drawStacks(place, analysis, state, choose) {
  const sizes = Object.fromEntries(
    Object.keys(SIDES).map((side) => [side, analysis.statistics[side].map((each) => each.merged_rms)]),
  );
  const largest = Math.max(...sizes.encoder, ...sizes.decoder, 1e-9);
  const ribbon = (size) =>
    element("span", { class: "ribbon", style: `--width:${(3 + 19 * Math.min(1, size / largest)).toFixed(1)}px` });
  fill(
    place,
    Object.entries(SIDES).map(([side, name]) => {
      const title = say(name);
      const trace = analysis.traces[side];
      const start = rootMeanSquare(trace.embeddings.map((each) => each.sum));
      const floors = [element("li", { class: "floor ground" }, ribbon(start), element("span", {}, say("embedding + position")))];
      trace.sublayers.forEach((sublayer, index) => {
        const numbers = analysis.statistics[side][index];
        const layer = Number(sublayer.name.split("/")[1]);
        const isFirst = index === 0 || Number(trace.sublayers[index - 1].name.split("/")[1]) !== layer;
        const isChosen = state.sublayer === sublayer.name;
        floors.push(
          element(
            "li",
            { class: `floor${isFirst ? " first" : ""}`, "data-layer": isFirst ? say("layer {number}", { number: layer + 1 }) : null },
            ribbon(numbers.merged_rms),
            element(
              "button",
              {
                type: "button",
                class: "box",
                "aria-pressed": isChosen,
                "aria-label": say("{side}, layer {layer}, {sublayer}: F over x {ratio}, stream {size}", {
                  side: title,
                  layer: layer + 1,
                  sublayer: say(SUBLAYERS[sublayer.kind]),
                  ratio: short(numbers.residual_ratio),
                  size: short(numbers.merged_rms),
                }),
                "data-focus": `box-${sublayer.name}`,
                "data-sublayer": sublayer.name,
                onclick: () => choose(sublayer.name),
              },
              say(SUBLAYERS[sublayer.kind]),
              element("span", { class: "loudness", style: `--share:${Math.min(1, numbers.residual_ratio / 2).toFixed(3)}` }),
            ),
          ),
        );
      });
      if (analysis.model[side].stack.final_norm) {
        const out = rootMeanSquare(trace.output);
        floors.push(element("li", { class: "floor ground" }, ribbon(out), element("span", {}, say("final norm"))));
      }
      floors.push(
        element("li", { class: "floor ground" }, element("span", { class: "ribbon end" }), element("span", {}, side === "encoder" ? say("to the decoder") : say("next piece"))),
      );
      return element(
        "div",
        { class: "stack" },
        element("h3", {}, title),
        element("ol", { class: "floors", "aria-label": say("{side}, from the embedding up", { side: title }) }, floors),
      );
    }),
  );
}

// The sublayer before or after, in the order in which they run.
function neighbour(analysis, name, by) {
  const names = Object.keys(SIDES).flatMap((side) => analysis.traces[side].sublayers.map((each) => each.name));
  return names[Math.max(0, Math.min(names.length - 1, names.indexOf(name) + by))];
}
