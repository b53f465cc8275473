// What happens from the first sublayer to the last, in every model: of this sentence, or at the
// steps of a recorded training.

function drawDepth(place, models, liveOf, state, change) {
  const steps = recordedSteps(models);
  const isRecorded = state.isRecorded && steps.length > 0;
  const index = Math.min(state.stepIndex, steps.length - 1);
  const seriesOf = (valuesOf) =>
    models.map((model) => ({ model, values: valuesOf(model), isChosen: model === state.model }));
  const recorded = seriesOf((model) => recordedSeries(model, isRecorded ? steps[index] : Infinity));
  const series = isRecorded ? recorded : seriesOf(liveOf);
  fill(
    place,
    steps.length ? depthControls(state, steps, index, isRecorded, change) : null,
    element(
      "div",
      { class: "legend", role: "group", "aria-label": say("The lines") },
      series.map(({ model, isChosen }) =>
        element(
          "button",
          {
            type: "button",
            class: "key",
            "aria-pressed": isChosen,
            "data-focus": `key-${model.name}`,
            "data-model": model.name,
            onclick: () => change({ model }),
            onmouseenter: () => light(place, model.name),
            onmouseleave: () => light(place, null),
            onfocus: () => light(place, model.name),
            onblur: () => light(place, null),
          },
          model.name,
        ),
      ),
    ),
    element(
      "div",
      { class: "charts" },
      // Of one sentence there are no gradients: those at the end of the training stand there.
      CHARTS.map((chart) =>
        chart.key === "gradient_norm" && !isRecorded
          ? depthChart({ ...chart, unit: toSay("length of the loss's gradient at the stream, at the end of the training") }, recorded, null)
          : depthChart(chart, series, isRecorded ? models : null),
      ),
    ),
  );
}

function light(place, name) {
  for (const line of place.querySelectorAll(".line, .line-name")) line.classList.toggle("lit", line.dataset.model === name);
}

function depthControls(state, steps, index, isRecorded, change) {
  const radio = (value, label) =>
    element(
      "label",
      {},
      element("input", {
        type: "radio",
        name: "depth-of",
        checked: isRecorded === value,
        "data-focus": `depth-${value}`,
        onchange: () => change({ isRecorded: value }),
      }),
      ` ${label}`,
    );
  return element(
    "fieldset",
    { class: "controls" },
    element("legend", {}, say("What is measured")),
    radio(false, say("this sentence, trained model")),
    radio(true, say("the recorded training")),
    element(
      "label",
      { class: "slider" },
      say("Update"),
      " ",
      element("input", {
        type: "range",
        min: 0,
        max: steps.length - 1,
        value: index,
        id: "step",
        "data-focus": "step-slider",
        "aria-valuetext": say("update {number}", { number: steps[index] }),
        oninput: (event) => change({ isRecorded: true, stepIndex: Number(event.target.value) }),
      }),
      element("output", { id: "step-label", for: "step" }, wholeNumber(steps[index])),
      element("span", { class: "aside" }, say("of {count}", { count: wholeNumber(steps.at(-1)) })),
    ),
  );
}

function recordedSteps(models) {
  const all = new Set(models.flatMap((model) => model.log?.steps ?? []));
  return [...all].sort((a, b) => a - b);
}

// The last record up to a step: { side: [{ key: number }] }, or null.
function recordedSeries({ log }, step) {
  const row = log ? log.steps.findLastIndex((each) => each <= step) : -1;
  if (row < 0) return null;
  const sides = { encoder: [], decoder: [] };
  log.sublayers.forEach((name, column) => {
    const numbers = Object.entries(log.values).map(([key, rows]) => [key, rows[row][column]]);
    sides[name.split("/")[0]].push({ name, ...Object.fromEntries(numbers) });
  });
  return sides;
}

function depthChart({ key, title, unit }, series, recordedModels) {
  const drawn = series.filter(({ values }) => values && valuesOf(values, key).length);
  if (!drawn.length) {
    const why = key === "gradient_norm" ? say("Only a recorded training has gradients.") : say("Nothing is recorded at this update.");
    return element("figure", { class: "chart", "data-key": key }, chartCaption(title, unit, {}), element("p", { class: "empty" }, why));
  }
  // One scale for all steps of a training, so that growth can be seen.
  const range = recordedModels
    ? recordedModels.flatMap((model) => (model.log ? model.log.values[key].flat() : []))
    : drawn.flatMap(({ values }) => valuesOf(values, key));
  const scale = scaleOf(range.filter((value) => value !== null && Number.isFinite(value)), key);
  const { width, height, left, right, bottom, gap } = chartBox();
  const half = (width - left - gap - right) / 2;
  const x = (side, i, count) =>
    left + (side === "decoder" ? half + gap : 0) + (count > 1 ? (i / (count - 1)) * half : half / 2);
  const y = (value) => 8 + (1 - scale.at(value)) * (height - bottom - 8);
  const pathOf = (values) =>
    Object.keys(SIDES)
      .map((side) => {
        let pen = "M";
        return values[side]
          .map((each, i) => {
            if (each[key] === null || each[key] === undefined || !scale.holds(each[key])) {
              pen = "M";
              return "";
            }
            const point = `${pen}${x(side, i, values[side].length).toFixed(1)} ${y(each[key]).toFixed(1)}`;
            pen = "L";
            return point;
          })
          .join("");
      })
      .join("");
  const chosenLast = [...drawn].sort((a, b) => a.isChosen - b.isChosen);
  const chosen = drawn.find(({ isChosen }) => isChosen);
  const ends = drawn.map(({ model, values, isChosen }) => {
    const side = values.decoder.some((each) => scale.holds(each[key])) ? "decoder" : "encoder";
    const at = values[side].findLastIndex((each) => scale.holds(each[key]));
    const place = { x: x(side, at, values[side].length), y: at < 0 ? null : y(values[side][at][key]) };
    return { name: model.name, isChosen, ...place };
  });
  const label = (text, at) => svg("text", { class: "tick", x: at, y: height - 8, "text-anchor": "middle" }, text);
  return element(
    "figure",
    { class: "chart", "data-key": key },
    chartCaption(title, unit, scale),
    svg(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        role: "img",
        tabindex: 0,
        "data-focus": `chart-${key}`,
        "aria-label": sentences(
          say("{title} by depth.", { title: say(title) }),
          ...drawn.map(({ model, values }) => describeLine(model, values, key)),
        ),
      },
      gridOf(scale, y),
      svg("path", { class: "grid middle", d: `M${left + half + gap / 2} 8V${height - bottom}` }),
      label(say("encoder →"), left + half / 2),
      label(say("decoder →"), left + half + gap + half / 2),
      chosenLast.map(({ model, values, isChosen }) =>
        svg("path", { class: `line${isChosen ? " chosen" : ""}`, "data-model": model.name, d: pathOf(values) }, svg("title", {}, model.name)),
      ),
      chosen &&
        Object.keys(SIDES).flatMap((side) =>
          chosen.values[side].map((each, i) =>
            each[key] === null || each[key] === undefined || !scale.holds(each[key])
              ? null
              : svg(
                  "circle",
                  { class: "dot", cx: x(side, i, chosen.values[side].length), cy: y(each[key]), r: 3.4 },
                  svg("title", {}, `${each.name}: ${short(each[key], 4)}`),
                ),
          ),
        ),
      endLabels(ends),
    ),
  );
}

// Where the lines and their names stand in a chart. A narrow screen has less room for lines, so that
// words are as large as elsewhere.
function chartBox() {
  const width = window.innerWidth < 640 ? 370 : 520;
  return { width, height: 230, left: 50, right: 96, bottom: 26, gap: 18 };
}

function chartCaption(title, unit, scale) {
  const words = scale.isLogarithmic ? say("{unit}; logarithmic", { unit: say(unit) }) : say(unit);
  return element("figcaption", {}, element("b", {}, say(title)), element("span", {}, words));
}

function gridOf(scale, y) {
  const { left, width, right } = chartBox();
  return scale.ticks.map((value, index) => [
    svg("path", { class: "grid", d: `M${left} ${y(value).toFixed(1)}H${width - right}` }),
    svg(
      "text",
      { class: "tick", x: left - 6, y: y(value) + 4, "text-anchor": "end" },
      `${index === 0 && scale.isCut ? "≤ " : ""}${short(value, 2)}`,
    ),
  ]);
}

// The name of each line at its end, moved apart where the ends are close.
function endLabels(ends) {
  const { width, height, right, bottom } = chartBox();
  const lowest = height - bottom + 4;
  const line = 13;
  const placed = ends.filter((each) => Number.isFinite(each.y)).sort((a, b) => a.y - b.y);
  const at = placed.map((each) => each.y);
  for (let i = 1; i < at.length; i++) at[i] = Math.max(at[i], at[i - 1] + line);
  for (let i = at.length - 1; i >= 0; i--) at[i] = Math.min(at[i], i === at.length - 1 ? lowest : at[i + 1] - line);
  const left = width - right + 12;
  return placed.map(({ name, x, y, isChosen }, i) => [
    svg("path", { class: "leader", d: `M${(x + 4).toFixed(1)} ${y.toFixed(1)}L${left - 3} ${at[i].toFixed(1)}` }),
    svg(
      "text",
      { class: `line-name${isChosen ? " chosen" : ""}`, "data-model": name, x: left, y: at[i] + 4 },
      name.length > 13 ? `${name.slice(0, 12)}…` : name,
    ),
  ]);
}

function valuesOf(values, key) {
  return Object.values(values)
    .flat()
    .map((each) => each[key])
    .filter((value) => value !== null && value !== undefined && Number.isFinite(value));
}

function describeLine(model, values, key) {
  const found = valuesOf(values, key);
  return say("{name}: from {first} to {last}, largest {largest}.", {
    name: model.name,
    first: short(found[0]),
    last: short(found[found.length - 1]),
    largest: short(maximumOf(found, -Infinity)),
  });
}

const MOST_POWERS = 5;

// Linear, or logarithmic where the numbers span more than a power of ten and a half.
function scaleOf(values, key, mostPowers = MOST_POWERS) {
  const positive = values.filter((value) => value > 0);
  const [low, high] = [minimumOf(positive, Infinity), maximumOf(positive, -Infinity)];
  if (key !== "cosine" && positive.length && high / low > 30) {
    const to = Math.ceil(Math.log10(high));
    // What is smaller lies on the ground: a gradient that has vanished would flatten all others.
    const from = Math.max(Math.floor(Math.log10(low)), to - mostPowers);
    const every = Math.ceil((to - from) / 6);
    return {
      isLogarithmic: true,
      isCut: low < 10 ** from,
      at: (value) => Math.max(0, Math.log10(value) - from) / (to - from),
      holds: (value) => value > 0 && Number.isFinite(value),
      ticks: Array.from({ length: Math.floor((to - from) / every) + 1 }, (_, i) => Number(`1e${from + i * every}`)),
    };
  }
  const bottom = minimumOf(values, 0);
  const top = key === "cosine" ? 1 : maximumOf(values, 1e-9);
  const step = niceStep((top - bottom) / 4);
  const first = Math.floor(bottom / step);
  const count = Math.ceil(top / step) - first;
  const [from, to] = [first * step, (first + count) * step];
  return {
    at: (value) => (value - from) / (to - from),
    holds: Number.isFinite,
    ticks: Array.from({ length: count + 1 }, (_, i) => Number(((first + i) * step).toPrecision(6))),
  };
}

// Of a long log there are more numbers than a function takes arguments.
function minimumOf(values, first) {
  return values.reduce((a, b) => Math.min(a, b), first);
}

function maximumOf(values, first) {
  return values.reduce((a, b) => Math.max(a, b), first);
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((digit) => digit * power >= rough) * power;
}
