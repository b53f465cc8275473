// From the question to the answer, in steps. A step is on the page if the models that it needs are.
//
// `text` is made of sentences; `known` leaves out one whose numbers the page does not have. `show`
// names what has to be seen beside the guide, a place or from one place to another: the first that
// fits, else the last. `point` is the
// operation that the figure lights up.

const WITH_BOTH = ["post_ln", "pre_ln"];
const WITHOUT_ADD = ["no_residual", "plain"];
const WITHOUT_NORM = ["no_norm"];
const FIGURE = ["#sublayer", ["#sublayer .terms", "#sublayer .flow"], "#sublayer .flow"];
const UNTRAINED = { isRecorded: true, stepIndex: 0 };
const TRAINED = { isRecorded: false };

const TOUR = [
  {
    title: toSay("The question"),
    text: ({ models }) => [
      say("A Transformer is a stack of sublayers, attentions and feed-forwards. Around each of them stand two small operations, drawn as one box: Add & Norm. Why add? Why norm?"),
      models.length > 1 ? say("Here run {count} small models, each with a choice of its own.", { count: models.length }) : say("Here runs a small model."),
      say("The guide goes to an answer step by step; its numbers are computed in this page, or were recorded while the models learned."),
    ],
    show: ["#sentence-section"],
    scheme: WITH_BOTH,
  },
  {
    title: toSay("A piece is a vector, and the vector is a stream"),
    text: ({ model }) => [
      say("The sentence is split into pieces: words, or parts of words. Each becomes a row of {count} numbers: its embedding, plus a pattern that says at which place it stands.", {
        count: model.hidden_dim,
      }),
      say("This row is x, the residual stream. It runs from the bottom of the model to the top, and every sublayer reads it and writes to it. Choose a piece and look at it."),
    ],
    show: ["#embedding-section", "#embedding"],
    scheme: WITH_BOTH,
    change: { side: "encoder" },
    first: true,
  },
  {
    title: toSay("F(x) is a difference"),
    text: ({ branchShare }) => [
      say("The sublayer reads x and computes F(x), the coloured bars. That is not a new vector: it is what has to change in x. If x is “bank”, half money and half river, and the sentence speaks of withdrawing money, F(x) is a little more money and a little less river."),
      known("Here F(x) is {share} times as long as x.", {
        share: branchShare,
      }),
    ],
    show: FIGURE,
    scheme: WITH_BOTH,
    first: true,
    point: "sublayer",
  },
  {
    title: toSay("Add"),
    text: ({ keptHere }) => [
      say("Then both are added. Grey is x, colour is what F(x) adds or takes away, the thick line is the sum. A sublayer with nothing to say has only to make F(x) zero: x goes on as it was."),
      known("The result y still points where x pointed: cos(x, y) is {kept}, where 1 is the same direction and 0 is nothing in common.", {
        kept: keptHere,
      }),
    ],
    show: FIGURE,
    scheme: WITH_BOTH,
    first: true,
    point: "add",
  },
  {
    title: toSay("Take the add away"),
    text: ({ loss }) => [
      say("The same sublayers and the same norm, but y has no x in it. Read what this model makes of the sentence."),
      known("Its loss on new texts is {loss}; with the add it is {loss2}.", {
        loss: loss(WITHOUT_ADD),
        loss2: loss(WITH_BOTH),
      }),
      say("There are two reasons."),
    ],
    show: ["#scheme-section", "#schemes", ".card.chosen"],
    scheme: WITHOUT_ADD,
    needs: WITHOUT_ADD,
  },
  {
    title: toSay("First reason: what came in is lost"),
    text: ({ kept }) => [
      known("cos(x, y) says how much of the direction of x is left after a sublayer. In the mean it is {kept} without the add, and {kept2} with it.", {
        kept: kept(WITHOUT_ADD),
        kept2: kept(WITH_BOTH),
      }),
      say("Without the add, a sublayer that mixes in what other words say, or looks something up, has to write down again all that was known. What it does not hand on is gone for all that follow: there is no way past it."),
    ],
    show: ['.chart[data-key="cosine"]'],
    scheme: WITHOUT_ADD,
    needs: WITHOUT_ADD,
    change: TRAINED,
  },
  {
    title: toSay("Second reason: the gradient is lost"),
    text: ({ gradient }) => [
      say("A model learns from gradients, and they run back from the top to the bottom. ∂(x + F(x))/∂x = 1 + ∂F/∂x: through the 1, they pass an add undiminished."),
      known("This is before the first update. From the top of the decoder to its bottom, the gradient falls from {gradient} to {gradient2} without the add; with it, from {gradient3} to {gradient4}.", {
        gradient: gradient(WITHOUT_ADD, "decoder", "top"),
        gradient2: gradient(WITHOUT_ADD, "decoder", "bottom"),
        gradient3: gradient(WITH_BOTH, "decoder", "top"),
        gradient4: gradient(WITH_BOTH, "decoder", "bottom"),
      }),
      say("What receives no gradient cannot learn."),
    ],
    show: ['.chart[data-key="gradient_norm"]'],
    scheme: WITHOUT_ADD,
    needs: WITHOUT_ADD,
    needsLog: true,
    change: UNTRAINED,
  },
  {
    title: toSay("Take the norm away"),
    text: ({ size }) => [
      say("So let us add, and do nothing else: y = x + F(x). If x and F(x) have nothing to do with one another their variances add, Var(x + F) = Var(x) + Var(F): the stream grows with every sublayer."),
      known("Before the first update, its size after the decoder's last sublayer is {size}; with a norm after each sum it is {size2}.", {
        size: size(WITHOUT_NORM),
        size2: size(["post_ln"]),
      }),
    ],
    show: ['.chart[data-key="merged_rms"]'],
    scheme: WITHOUT_NORM,
    needs: WITHOUT_NORM,
    change: UNTRAINED,
  },
  {
    title: toSay("Is that bad?"),
    text: ({ gradient, loss }) => [
      say("With so few layers the model still learns to translate. But sublayers that read larger numbers have larger gradients below them, and one learning rate has to suit all."),
      known("At the bottom of the encoder the first gradient is {gradient}, with norms {gradient2}.", {
        gradient: gradient(WITHOUT_NORM, "encoder", "bottom"),
        gradient2: gradient(["post_ln"], "encoder", "bottom"),
      }),
      known("In the end its loss is {loss}; with norms it is {loss2}.", {
        loss: loss(WITHOUT_NORM),
        loss2: loss(WITH_BOTH),
      }),
      say("Next: what would happen if there were more layers."),
    ],
    show: ['.chart[data-key="gradient_norm"]'],
    scheme: WITHOUT_NORM,
    needs: WITHOUT_NORM,
    needsLog: true,
    change: UNTRAINED,
  },
  {
    title: toSay("Deeper"),
    text: () => [
      say("A thought experiment with random weights: pull the slider to more sublayers. Without a norm the stream doubles with every two of them. Without the add, hardly anything of x is left after the first."),
      say("With both, the size stays in hand and x fades step by step: fast where the norm scales down the sum, slowly where it stands before the sublayer."),
    ],
    show: ["#deeper-section", "#deeper", ["#deeper .controls", '.chart[data-key="deeper-size"]']],
  },
  {
    title: toSay("Norm"),
    text: () => [
      say("The norm brings the numbers of one piece back to one size: take off their mean μ, divide by √(σ² + ε), almost their standard deviation, then times γ, plus β, which are learned. Below the bars, one number is worked out by hand."),
      say("It needs no other piece and no other sentence, unlike batch norm."),
    ],
    show: [["#sublayer .terms", "#sublayer .by-hand"], ["#sublayer .flow", "#sublayer .by-hand"], "#sublayer .by-hand"],
    scheme: WITH_BOTH,
    needs: WITH_BOTH,
    first: true,
    point: "norm",
  },
  {
    title: toSay("Where does the norm stand?"),
    text: ({ growth }) => [
      say("Post-LN, LN(x + F(x)): after the sum. Every sum is brought back to one size, up to the learned γ, but x and every gradient have to pass every norm, so deep stacks need a warm-up: small learning rates at first."),
      known("Here the decoder's stream ends at {growth}; before the training, when γ was 1, it ended at 1.", {
        growth: growth(["post_ln"], -1),
      }),
      say("Pre-LN, x + F(LN(x)): before the sublayer. From bottom to top there are only additions."),
      known("Its stream may grow, here from {growth} to {growth2} in the decoder, so one more norm stands at the end.", {
        growth: growth(["pre_ln"], 0),
        growth2: growth(["pre_ln"], -1),
      }),
    ],
    show: ['.chart[data-key="merged_rms"]'],
    scheme: ["pre_ln"],
    needs: ["pre_ln", "post_ln"],
    change: TRAINED,
  },
  {
    title: toSay("Watch it learn"),
    text: () => [
      say("Pull the slider from the first update to the last, and choose schemes by their names. Watch the gradient without the add, and how the size of the stream grows without a norm and changes by a small factor with one."),
    ],
    show: ["#depth-section", "#depth", "#depth .controls"],
    change: UNTRAINED,
    needsLog: true,
  },
  {
    title: toSay("The answer"),
    text: ({ loss }) => [
      say("Add, because then a sublayer has to say only what changes: what x knew stays, and gradients reach every layer."),
      known("(Loss without: {loss}.)", {
        loss: loss(WITHOUT_ADD),
      }),
      say("Norm, because what is added grows: with it every sublayer reads numbers of one size, however many stand below."),
      known("(Loss without: {loss}. With both: {loss2}.)", {
        loss: loss(WITHOUT_NORM),
        loss2: loss(WITH_BOTH),
      }),
      say("Where the norm stands is a choice between a norm on the way of the stream and a free way from bottom to top; the other schemes try to have both."),
      say("Now choose another scheme, and change a name or a number of the sentence. The same step by step in Python: the notebooks “Add & Norm from scratch” and “Why norm”."),
    ],
    show: ["#scheme-section", "#schemes", ".card.chosen"],
    scheme: WITH_BOTH,
  },
];

// A sentence with numbers; an empty one if a number is not known.
function known(text, values) {
  const found = Object.entries(values);
  if (found.some(([, value]) => value === null || value === undefined || Number.isNaN(value))) return "";
  const words = (value) => (typeof value === "number" ? short(value) : value);
  return say(text, Object.fromEntries(found.map(([name, value]) => [name, words(value)])));
}

// What the guide says in numbers. `analysisFound` gives what has been computed of a model so far.
function tourFacts(models, state, analysisFound) {
  const modelOf = (schemes) => schemes.map((name) => models.find((each) => each.scheme === name)).find(Boolean);
  const recorded = (schemes, key, side) => {
    const model = modelOf(schemes);
    // Only a record from before the first update says what the guide says of it.
    const series = model && recordedSteps(models)[0] === 0 && recordedSeries(model, 0);
    return series ? series[side].map((each) => each[key]) : null;
  };
  const live = (schemes) => {
    const model = modelOf(schemes);
    return (model && analysisFound(model)?.statistics) ?? null;
  };
  const here = () => {
    const [side] = state.sublayer.split("/");
    const traces = analysisFound(state.model)?.traces;
    const trace = traces?.[side].sublayers.find((each) => each.name === state.sublayer);
    const row = (rows) => rows[state.positions[side]];
    return trace ? { x: row(trace.tensors.x), f: row(branchOf(trace)), y: row(trace.tensors.y) } : null;
  };
  const length = (row) => Math.sqrt(dot(row, row));
  const tensors = here();
  return {
    models,
    model: state.model,
    branchShare: tensors && length(tensors.f) / length(tensors.x),
    keptHere: tensors && cosine(tensors.x, tensors.y),
    loss: (schemes) => lossWords(modelOf(schemes)),
    kept: (schemes) => {
      const found = live(schemes);
      return found && mean(Object.values(found).flat().map((each) => each.cosine));
    },
    gradient: (schemes, side, end) => recorded(schemes, "gradient_norm", side)?.at(end === "top" ? -1 : 0) ?? null,
    size: (schemes) => recorded(schemes, "merged_rms", "decoder")?.at(-1) ?? null,
    growth: (schemes, at) => live(schemes)?.decoder.at(at).merged_rms ?? null,
  };
}

function tourSteps(models) {
  const names = new Set(models.map((model) => model.scheme));
  const hasLog = models.some((model) => model.log);
  return TOUR.filter(
    ({ needs, needsLog }) => (!needs || needs.some((name) => names.has(name))) && (!needsLog || hasLog),
  );
}

// What a step is called in the address of the page: words of its title.
function stepName(step) {
  return step.title.toLowerCase().replace(/[^a-z]+/g, "-").replace(/^-|-$/g, "");
}

function drawTour(place, steps, state, facts, go) {
  const at = state.tourStep;
  place.classList.toggle("closed", at === null);
  const [text, buttons] = [place.querySelector(".tour-text"), place.querySelector(".tour-buttons")];
  const button = (to, label, kind, name) =>
    element("button", { type: "button", class: kind, "data-focus": `tour-${name}`, onclick: () => go(to) }, label);
  if (at === null) {
    text.replaceChildren();
    fill(buttons, button(0, say("Guide me"), "main", "Guide me"));
    return;
  }
  const says = sentences(...steps[at].text(facts));
  // The same text again would be read aloud again.
  if (text.dataset.said !== `${at} ${says}` || !text.childElementCount) {
    text.dataset.said = `${at} ${says}`;
    text.replaceChildren(
      element("p", { class: "eyebrow" }, say("{number} of {count}", { number: at + 1, count: steps.length })),
      element("h2", {}, say(steps[at].title)),
      element("p", {}, says),
    );
    place.scrollTop = 0;
  }
  const isLast = at === steps.length - 1;
  fill(
    buttons,
    at > 0 ? button(at - 1, say("Back"), "quiet", "Back") : null,
    isLast ? button(null, say("Done"), "main", "Next") : button(at + 1, say("Next"), "main", "Next"),
    isLast ? button(0, say("From the start"), "quiet", "From the start") : null,
    element(
      "button",
      { type: "button", class: "quiet skip", "data-focus": "tour-figure", onclick: () => enter(steps[at].show) },
      say("Go to what is shown"),
    ),
    element("button", { type: "button", class: "quiet", "data-focus": "tour-close", "aria-label": say("Close the guide"), onclick: () => go(null) }, "×"),
  );
}

// Puts the focus on the first thing in what a step shows: from the guide it is far with the Tab key.
function enter(selectors) {
  const place = document.querySelector([selectors.at(-1)].flat()[0]);
  (place.querySelector("input, button, [tabindex]") ?? place).focus();
}

// Brings to the top of the window the first of these that the guide does not cover, else the last.
function reveal(selectors) {
  const margin = 16;
  const room = byId("tour").getBoundingClientRect().top - 2 * margin;
  const boxOf = (selector) => document.querySelector(selector).getBoundingClientRect();
  const spans = selectors.map((each) => [each].flat()).map((each) => ({ top: boxOf(each[0]).top, bottom: boxOf(each.at(-1)).bottom }));
  const { top } = spans.find((span) => span.bottom - span.top <= room) ?? spans.at(-1);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  window.scrollTo({ top: top + window.scrollY - margin, behavior: calm ? "auto" : "smooth" });
}
