// A scheme's formula, written from its steps: symbols, each with the tensor that it stands for.

// y as [{ symbol, tensor }], where brackets have no tensor.
function formulaOf(sublayer) {
  const made = new Map(sublayer.steps.map((step) => [step.makes, step]));
  const of = (tensor) => {
    const step = made.get(tensor);
    if (!step) return [{ symbol: "x", tensor: "x" }];
    const inside = step.reads.map(of);
    const isSum = (name) => made.get(name)?.operation === "add";
    const bracketed = (symbol) => [
      { symbol, tensor },
      { symbol: "(" },
      ...inside[0],
      { symbol: ")" },
    ];
    return {
      norm: () => bracketed(NORM_SYMBOLS[sublayer.parts[step.weight]?.kind] ?? "LN"),
      sublayer: () => bracketed("F"),
      scale: () => [
        { symbol: step.symbol, tensor },
        { symbol: "\u202f" },
        ...(isSum(step.reads[0]) ? [{ symbol: "(" }, ...inside[0], { symbol: ")" }] : inside[0]),
      ],
      gate: () => bracketed("G"),
      add: () => [...inside[0], { symbol: "+", tensor }, ...inside[1]],
      remove_parallel: () => [...inside[0], { symbol: "⊥", tensor }],
    }[step.operation]();
  };
  return [{ symbol: "y", tensor: "y" }, { symbol: "=" }, ...of("y")];
}

function formulaText(sublayer) {
  return formulaOf(sublayer)
    .map(({ symbol }) => (symbol === "+" || symbol === "=" ? ` ${symbol} ` : symbol))
    .join("");
}

// The formula on a card: nothing to point at.
function formulaLine(sublayer) {
  return element(
    "span",
    { class: "formula" },
    formulaOf(sublayer).map(({ symbol }) => element("i", { class: symbolClass(symbol) }, symbol)),
  );
}

// The formula whose terms can be pointed at and reached by the keyboard.
function formulaTerms(sublayer, onPoint) {
  return element(
    "div",
    { class: "formula terms", role: "group", "aria-label": say("Formula: {formula}", { formula: formulaText(sublayer) }) },
    formulaOf(sublayer).map(({ symbol, tensor }, index) =>
      tensor
        ? element(
            "button",
            {
              type: "button",
              class: `term ${symbolClass(symbol)}`,
              "data-tensor": tensor,
              "data-focus": `term-${index}`,
              onmouseenter: () => onPoint(tensor),
              onfocus: () => onPoint(tensor),
              onclick: () => onPoint(tensor),
            },
            symbol,
          )
        : element("span", { class: symbolClass(symbol) }, symbol),
    ),
  );
}

function symbolClass(symbol) {
  if (symbol === "+" || symbol === "=") return "operator";
  return /^[a-zA-Zα-ω]$/.test(symbol) ? "letter" : "name";
}
