// Joins what computes and what draws: one state, and one function that changes it.

const data = JSON.parse(byId("data").textContent);
const tokenizers = data.tokenizers.map((described) => new Tokenizer(described));
const models = data.models.map((described) => new Model(described, tokenizers));

const state = {
  text: data.sentences[0]?.[0] ?? "",
  model: models[0],
  side: "encoder",
  positions: { encoder: 0, decoder: 0 },
  sublayer: models[0].encoder.stack.sublayers[0].name,
  numBeams: 3,
  isRecorded: false,
  stepIndex: 0,
  tourStep: 0,
  // The operation that the figure lights up, and the number that it works out by hand.
  pointed: "add",
  channel: 0,
  depth: 24,
  numbersAreOpen: false,
};

// All that one model makes of one text.
class Analysis {
  constructor(model, text) {
    this.model = model;
    const ids = model.sourceIds(text);
    this.isEmpty = ids.length === model.before_source.length + model.behind_source.length;
    this.sourceIds = ids.length ? ids : [model.end_id];
    const { memory, trace } = model.encode(this.sourceIds);
    this.memory = memory;
    // A model that has not learned to end would go on until its last position.
    this.longest = Math.min(longestOf(model), 2 * this.sourceIds.length + 10);
    const found = this.isEmpty ? [model.end_id] : greedy(model, memory, this.longest);
    this.nextIds = [...model.target_prefix, ...found];
    this.targetIds = [model.start_id, ...this.nextIds.slice(0, -1)];
    const decoded = model.decode(this.targetIds, memory);
    this.logits = decoded.logits;
    this.traces = { encoder: trace, decoder: decoded.trace };
    this.translation = model.target.decode(found);
    this.sourceLabels = this.sourceIds.map((id) => model.source.label(id));
    this.targetLabels = this.targetIds.map((id, i) => (i === 0 ? say("(start)") : model.target.label(id)));
    this.statistics = Object.fromEntries(
      Object.entries(this.traces).map(([side, { sublayers }]) => [
        side,
        sublayers.map((each) => ({ name: each.name, ...statisticsOf(each) })),
      ]),
    );
    this.beams = new Map();
  }

  beam(numBeams) {
    if (!this.beams.has(numBeams)) {
      this.beams.set(numBeams, beamSearch(this.model, this.memory, numBeams, this.longest));
    }
    return this.beams.get(numBeams);
  }
}

const analyses = new Map();

function analysisOf(model) {
  if (!analyses.has(model)) analyses.set(model, new Analysis(model, state.text));
  return analyses.get(model);
}

// What has to be drawn again, where that is not everything.
const DRAWN_ALONE = {
  isRecorded: drawDepthSection,
  stepIndex: drawDepthSection,
  channel: drawSublayerSection,
  depth: drawDeeperSection,
};

function change(changes) {
  if ("text" in changes && changes.text !== state.text) analyses.clear();
  Object.assign(state, changes);
  keepInside();
  const drawn = new Set(Object.keys(changes).map((key) => DRAWN_ALONE[key] ?? draw));
  if (drawn.has(draw)) draw();
  else for (const each of drawn) each();
}

// Another sentence may be shorter, another model less deep.
function keepInside() {
  const analysis = analysisOf(state.model);
  const lengths = { encoder: analysis.sourceIds.length, decoder: analysis.targetIds.length };
  for (const [side, length] of Object.entries(lengths)) {
    state.positions[side] = Math.min(state.positions[side], length - 1);
  }
  const [side] = state.sublayer.split("/");
  state.channel = Math.min(state.channel, state.model.hidden_dim - 1);
  const names = state.model[side].stack.sublayers.map((each) => each.name);
  if (!names.includes(state.sublayer)) state.sublayer = names[0];
}

function choosePiece(side, index) {
  const isOther = state.sublayer.split("/")[0] !== side;
  change({
    side,
    positions: { ...state.positions, [side]: index },
    ...(isOther ? { sublayer: state.model[side].stack.sublayers[0].name } : {}),
  });
}

function chooseSublayer(name) {
  change({ sublayer: name, side: name.split("/")[0] });
}

function draw() {
  const analysis = analysisOf(state.model);
  drawExamples();
  drawSchemes();
  drawPieces(byId("pieces"), analysis, state, choosePiece);
  drawEmbedding(byId("embedding"), analysis, state);
  drawStacks(byId("stacks"), analysis, state, chooseSublayer);
  drawSublayerSection();
  drawAttention(byId("attention"), analysis, state);
  drawNextToken(byId("next-token"), analysis, state, (index) => choosePiece("decoder", index));
  drawBeam(byId("beam"), analysis, state, (numBeams) => change({ numBeams }));
  drawDepthSection();
  drawGuide();
  computeTheOthers();
}

function drawGuide() {
  const facts = tourFacts(models, state, (model) => analyses.get(model));
  drawTour(byId("tour"), tour, state, facts, goTour);
}

function drawSublayerSection() {
  drawSublayer(byId("sublayer"), analysisOf(state.model), state, chooseSublayer, (channel) => change({ channel }));
}

function drawDeeperSection() {
  drawDeeper(byId("deeper"), state, (depth) => change({ depth }));
}

function drawDepthSection() {
  const liveOf = (model) => analyses.get(model)?.statistics ?? null;
  drawDepth(byId("depth"), models, liveOf, state, change);
}

// The other models follow when the page has been drawn, one at a time.
function computeTheOthers() {
  const missing = models.find((model) => !analyses.has(model));
  if (!missing) return;
  setTimeout(() => {
    analysisOf(missing);
    drawSchemes();
    drawDepthSection();
    drawGuide();
    computeTheOthers();
  });
}

function drawExamples() {
  fill(
    byId("examples"),
    data.sentences.map(([text], index) =>
      element(
        "button",
        {
          type: "button",
          class: "example",
          "aria-pressed": text === state.text,
          "data-focus": `example-${index}`,
          onclick: () => {
            byId("text").value = text;
            change({ text });
          },
        },
        text,
      ),
    ),
  );
  const reference = referenceOf(state.text);
  byId("reference").textContent = reference
    ? say("It should say: {reference}", { reference })
    : say("These models are small: they know sentences of the kind that they have learned, like those above. Change a name or a number in one of them; of other sentences they make nonsense.");
}

function referenceOf(text) {
  return data.sentences.find(([each]) => each === text)?.[1];
}

// The switch: a card a model, with what it makes of the sentence.
function drawSchemes() {
  fill(
    byId("schemes"),
    models.map((model, index) => {
      const analysis = analyses.get(model);
      const reference = referenceOf(state.text);
      const isChosen = model === state.model;
      // A layer behind the first: some schemes have another rule there.
      const sublayers = model.encoder.stack.sublayers;
      return element(
        "label",
        { class: `card${isChosen ? " chosen" : ""}` },
        element("input", {
          type: "radio",
          name: "model",
          class: "hidden-input",
          checked: isChosen,
          "data-focus": `scheme-${index}`,
          "data-model": model.name,
          onchange: () => change({ model }),
        }),
        element("span", { class: "card-name" }, model.name),
        formulaLine(sublayers[sublayers.length - 1]),
        element("span", { class: "aside idea" }, say(model.idea)),
        element("span", { class: "translation" }, analysis ? analysis.translation || say("(nothing)") : "…"),
        element(
          "span",
          { class: "aside verdict" },
          analysis && reference
            ? element("span", {}, analysis.translation === reference ? say("✓ what it should say") : say("✗ not what it should say"))
            : null,
          model.validation_loss === null ? null : element("span", {}, say("validation loss {loss}", { loss: lossWords(model) })),
        ),
      );
    }),
  );
}

const tour = tourSteps(models);

function goTour(at) {
  const address = at === null ? location.pathname + location.search : `#${stepName(tour[at])}`;
  history.replaceState(null, "", address);
  if (at === null) {
    change({ tourStep: null });
    return;
  }
  const { show, scheme, change: changes, first, point } = tour[at];
  const model = scheme && scheme.map((name) => models.find((each) => each.scheme === name)).find(Boolean);
  change({
    tourStep: at,
    pointed: point ?? "add",
    ...(model ? { model } : {}),
    ...(first ? { sublayer: models[0].encoder.stack.sublayers[0].name, side: "encoder" } : {}),
    ...(changes ?? {}),
  });
  reveal(show);
}

let waiting;
byId("text").addEventListener("input", (event) => {
  clearTimeout(waiting);
  waiting = setTimeout(() => change({ text: event.target.value }), 200);
});
byId("text").value = state.text;
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.tourStep !== null) goTour(null);
});
// A link to a step, also where the page is open already.
function goToAddress() {
  const at = tour.findIndex((step) => `#${stepName(step)}` === location.hash);
  if (at >= 0) goTour(at);
}
window.addEventListener("hashchange", goToAddress);
function chooseLanguage(chosen) {
  language = chosen;
  analyses.clear(); // Labels of pieces are words, too.
  sayStillTexts();
  byId("note").textContent = say(data.note);
  drawLanguages(byId("languages"), (key) => {
    chooseLanguage(key);
    keepLanguage();
  });
  drawDeeperSection();
  draw();
}
chooseLanguage(preferredLanguage());
goToAddress();

// For the console, and for tests.
window.explain = {
  ...{ data, models, tokenizers, state, change, analysisOf, greedy, beamSearch, Analysis },
  ...{ tour, goTour, deeperSeries, short },
};
