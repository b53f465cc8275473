// From the question to the answer, in steps. A step is on the page if the models that it needs are.

const TOUR = [
  {
    title: "The question",
    text: "Every sublayer of a Transformer is wrapped in two small operations, Add & Norm. Most explanations give them two sentences. Why add? Why norm? This model is small enough to look at every number, and it runs in this page. Type a sentence, or take one of these.",
    section: "sentence-section",
  },
  {
    title: "A piece is a vector, and the vector is a stream",
    text: "Each piece of the sentence becomes a row of numbers: its embedding, times √D, plus a pattern that says where it stands. This x is the stream. It will run from the bottom of the stack to its top. Choose a piece and look at it.",
    section: "embedding-section",
    change: { side: "encoder" },
  },
  {
    title: "F(x) is a difference",
    text: "A sublayer does not make a new vector. It says what has to change: if x is “bank”, half money and half river, and the sentence speaks of withdrawing money, F(x) is a little more money and a little less river. Look at the bars of F(x) beside those of x.",
    section: "sublayer-section",
    scheme: ["post_ln", "pre_ln"],
    first: true,
  },
  {
    title: "Add",
    text: "x + F(x): grey is x, colour is what F(x) adds or takes away. What x knew is still there unless F takes it away. To do nothing, F has only to be zero; without the skip it would have to learn the identity. And on the way back the gradient passes the sum undiminished.",
    section: "sublayer-section",
    scheme: ["post_ln", "pre_ln"],
    first: true,
  },
  {
    title: "Take the add away",
    text: "Here y has no x in it: the norm without the add. Read what it makes of the sentence, and look at cos(x, y): each sublayer leaves little of what came in. What one layer does not hand on is gone for all that follow.",
    section: "scheme-section",
    scheme: ["no_residual", "plain"],
    needs: ["no_residual", "plain"],
  },
  {
    title: "Take the norm away",
    text: "y = x + F(x) and nothing else. Variances add: of independent x and F(x), Var(x + F) = Var(x) + Var(F), so the stream grows from sublayer to sublayer. The ribbon on the map and the first chart show it. If F becomes much larger than x, x drowns.",
    section: "depth-section",
    scheme: ["no_norm", "rezero"],
    needs: ["no_norm"],
  },
  {
    title: "Norm",
    text: "The norm brings the numbers of one position back to mean 0 and variance 1: take off μ, divide by √(σ² + ε), then times γ plus β. Point at LN in the formula: μ and σ of what came in stand beside the bars. It needs no other sentence of the batch, unlike batch norm. (Some tutorials divide by σ + ε with the unbiased σ: another formula under the same name.)",
    section: "sublayer-section",
    scheme: ["post_ln"],
    needs: ["post_ln"],
  },
  {
    title: "Where does the norm stand?",
    text: "Post-LN: on the road, behind the sum. The stream keeps one size, but every gradient has to pass every norm: deep stacks need a warm-up. Pre-LN: inside the branch. The road is free, gradients are even, and the stream may grow; one more norm at the end, which Post-LN has not, makes it small again. Many texts draw one and code the other.",
    section: "depth-section",
    scheme: ["pre_ln"],
    needs: ["pre_ln", "post_ln"],
  },
  {
    title: "Watch it learn",
    text: "Drag the slider from the first step of the training to the last. Before it has learned anything, each scheme already has a size of stream and gradient of its own: that is what initial values, warm-up and depth have to get along with.",
    section: "depth-section",
    change: { isRecorded: true, stepIndex: 0 },
    needsLog: true,
  },
  {
    title: "The answer",
    text: "Add, so that a layer has to say only what changes, and so that information and gradients have a road past it. Norm, because what is added grows: it keeps what each sublayer reads at one size. Where the norm stands decides which of the two is disturbed, and the other schemes are ways to have both.",
    section: "scheme-section",
  },
];

function tourSteps(models) {
  const names = new Set(models.map((model) => model.scheme));
  const hasLog = models.some((model) => model.log);
  return TOUR.filter(
    ({ needs, needsLog }) => (!needs || needs.some((name) => names.has(name))) && (!needsLog || hasLog),
  );
}

function drawTour(place, steps, state, go) {
  if (state.tourStep === null) {
    fill(
      place,
      element("button", { type: "button", class: "quiet", "data-focus": "tour-open", onclick: () => go(0) }, "Guide me"),
    );
    return;
  }
  const at = state.tourStep;
  const button = (to, label, kind) =>
    element(
      "button",
      { type: "button", class: kind, disabled: to < 0 || to >= steps.length, "data-focus": `tour-${label}`, onclick: () => go(to) },
      label,
    );
  fill(
    place,
    element(
      "div",
      { class: "tour-text", "aria-live": "polite" },
      element("p", { class: "eyebrow" }, `${at + 1} of ${steps.length}`),
      element("h2", {}, steps[at].title),
      element("p", {}, steps[at].text),
    ),
    element(
      "div",
      { class: "tour-buttons" },
      button(at - 1, "Back", "quiet"),
      button(at + 1, "Next", "main"),
      element("button", { type: "button", class: "quiet", "data-focus": "tour-close", "aria-label": "Close the guide", onclick: () => go(null) }, "×"),
    ),
  );
}
