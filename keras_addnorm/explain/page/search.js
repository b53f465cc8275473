// Greedy search and beam search, as keras_addnorm.decoding does them.

const IMPOSSIBLE = -1e9;

function logProbabilities(model, logits) {
  const found = logSoftmax(logits);
  for (const id of model.never_generated) found[id] = IMPOSSIBLE;
  return found;
}

// Reads the start and what every target begins with: the decoder, and the logits behind them.
function begin(model, memory) {
  const decoder = new Decoder(model, memory);
  const prefix = [model.start_id, ...model.target_prefix];
  let logits;
  for (const id of prefix) logits = decoder.step(id);
  return { decoder, logits };
}

function longestOf(model) {
  return model.max_length - model.target_prefix.length;
}

// The most probable token at each step, until the end: ids with the end.
function greedy(model, memory, maxLength = longestOf(model)) {
  let { decoder, logits } = begin(model, memory);
  const ids = [];
  while (ids.length < maxLength) {
    const scores = logProbabilities(model, logits);
    let best = 0;
    for (let id = 1; id < scores.length; id++) if (scores[id] > scores[best]) best = id;
    ids.push(best);
    if (best === model.end_id) break;
    logits = decoder.step(best);
  }
  return ids;
}

const LENGTH_PENALTIES = {
  gnmt: (length, alpha) => ((5 + length) / 6) ** alpha,
  average: (length, alpha) => Math.max(length, 1) ** alpha,
};

// Beam search: { hypotheses: [{ ids, score }], steps }. Each step has the candidates that were
// looked at, best first, and what became of them: "kept", "finished" or "dropped".
function beamSearch(model, memory, numBeams, maxLength = longestOf(model)) {
  const { name, alpha } = model.length_penalty;
  const divisor = (length) => (alpha ? LENGTH_PENALTIES[name](length, alpha) : 1);
  const start = begin(model, memory);
  let alive = [{ ...start, ids: [], sum: 0, node: null }];
  const finished = [];
  const steps = [];
  let isDone = false;
  for (let length = 1; length <= maxLength && !isDone; length++) {
    const candidates = bestCandidates(model, alive, 2 * numBeams, length);
    const kept = candidates.filter((each) => each.token !== model.end_id).slice(0, numBeams);
    for (const each of kept) each.state = "kept";
    candidates.forEach((each, rank) => {
      if (each.token !== model.end_id || rank >= numBeams) return;
      each.state = "finished";
      finished.push({ ids: each.ids, score: each.sum / divisor(length), node: each });
    });
    finished.sort((a, b) => b.score - a.score);
    steps.push(candidates);
    alive = kept.map(continued);
    isDone = finished.length >= numBeams || kept.length === 0;
    if (!isDone && length === maxLength) {
      finished.push(...kept.map((node) => ({ ids: node.ids, score: node.sum / divisor(length), node })));
      finished.sort((a, b) => b.score - a.score);
    }
  }
  return { hypotheses: finished.slice(0, numBeams), steps };
}

function continued(candidate) {
  const decoder = candidate.origin.decoder.copy();
  return { decoder, logits: decoder.step(candidate.token), ids: candidate.ids, sum: candidate.sum, node: candidate };
}

function bestCandidates(model, alive, count, length) {
  const all = alive.flatMap((origin) =>
    Array.from(logProbabilities(model, origin.logits), (logP, token) => ({
      token,
      logP,
      sum: origin.sum + logP,
      origin,
    })).filter((each) => each.logP > IMPOSSIBLE / 2),
  );
  // A stable sort: of equals, the better-ranked hypothesis, then the smaller id.
  const best = all.sort((a, b) => b.sum - a.sum).slice(0, count);
  return best.map(({ token, logP, sum, origin }, rank) => ({
    token,
    logP,
    sum,
    origin,
    rank,
    length,
    parent: origin.node,
    ids: [...origin.ids, token],
    state: "dropped",
  }));
}
