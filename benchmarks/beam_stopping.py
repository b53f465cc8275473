"""When a beam search should stop: what each rule loses, and what waiting costs.

A trained run translates a split with greedy search and with beams that stop by each rule of
`Beam.early_stopping`, under several length penalties. For each the script prints

- how often the beam's output is worse than that of greedy search, by the score of that search,
  and how often because the beam had dropped the beginning of greedy's output (the rest stopped too
  soon),
- how often it is worse than the best that a beam of this width sees without ever stopping,
- how many outputs have no end, and BLEU,
- the steps until a sentence is done, of the best output alone and of all K, and
- with `--rounds`, the time of the searches under XLA over a quarter of the sentences, in turn, as a
  share of `True`'s.

Scores are those of the compiled searches. Why a beam is worse, and its steps, are told by a beam in
plain NumPy that never stops; its scores are compared with the compiled ones.

python benchmarks/beam_stopping.py --run-dir runs/demo-en-de --split test
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import measure
import numpy as np
import tensorflow as tf
from keras import ops

from keras_addnorm.decoding import AveragePenalty, Beam, Greedy, LengthPenalty, length_penalties
from keras_addnorm.decoding.beam import EarlyStopping, Progress, are_done
from keras_addnorm.decoding.engine import engine_for
from keras_addnorm.decoding.search_inputs import reorder_rows
from keras_addnorm.decoding.strategy import make_step_model
from keras_addnorm.decoding.tensor_ops import IMPOSSIBLE
from keras_addnorm.runs import RunDirectory
from keras_addnorm.runs.text_data import load_texts
from keras_addnorm.runs.trained_run import TrainedRun, load_run
from keras_addnorm.training import evaluate_translations

RULES: tuple[EarlyStopping, ...] = (True, "current_length", False)
PENALTIES: dict[str, LengthPenalty] = {
    "0": length_penalties.get(0.0),
    "0.6": length_penalties.get(0.6),
    "average": AveragePenalty(),
}
# Sums of float32 in another order.
ROUNDING = 1e-3


@dataclasses.dataclass(frozen=True)
class Step:
    """What B beams of K hypotheses hold after a step.

    Attributes:
        alive: `(B, K, n)`, the unfinished ones.
        alive_sums: `(B, K)`.
        ends: `(B, K, n)`, the candidates that ended.
        end_sums: `(B, K)`; what did not end is impossible.
    """

    alive: np.ndarray
    alive_sums: np.ndarray
    ends: np.ndarray
    end_sums: np.ndarray


@dataclasses.dataclass(frozen=True)
class Found:
    """The outputs of a search.

    Attributes:
        ids: `(B, T)`.
        scores: `(B,)`.
    """

    ids: np.ndarray
    scores: np.ndarray


def never_stopping(model: Any, source: np.ndarray, num_beams: int, longest: int) -> list[Step]:
    """Search to the last position, whatever has ended: each step of a beam search."""
    ids, size = model.config.special_ids, len(source)
    engine = engine_for(jit_compile=False)
    stepper = make_step_model(model, ops.array(source), longest, num_beams, num_beams, engine)
    cache = stepper.grow(stepper.cache, longest)
    decode = tf.function(stepper.step, autograph=False, reduce_retracing=True)
    tokens = np.full((size, num_beams), ids.start_id)
    alive = np.zeros((size, num_beams, 0), int)
    sums = np.where(np.arange(num_beams) == 0, 0.0, IMPOSSIBLE) * np.ones((size, 1))
    steps = []
    for index in range(longest):
        logits, cache = decode(
            ops.array(tokens.reshape(-1), "int32"), ops.array(index, "int32"), cache
        )
        logits = ops.convert_to_numpy(logits).astype("float64")
        logits -= logits.max(-1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        log_p[:, list(ids.never_generated)] = IMPOSSIBLE
        total = (sums[..., None] + log_p.reshape(size, num_beams, -1)).reshape(size, -1)
        best = np.argpartition(-total, 2 * num_beams, axis=1)[:, : 2 * num_beams]
        order = np.argsort(-np.take_along_axis(total, best, 1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, 1)
        candidate_sums = np.take_along_axis(total, best, 1)
        origin, token = np.divmod(best, log_p.shape[-1])
        grown = np.take_along_axis(alive, origin[..., None], 1)
        grown = np.concatenate([grown, token[..., None]], -1)
        is_end = token == ids.end_id
        first = slice(0, num_beams)
        end_sums = np.where(is_end, candidate_sums, IMPOSSIBLE)[:, first]
        kept = np.argsort(is_end, axis=1, kind="stable")[:, :num_beams]
        alive = np.take_along_axis(grown, kept[..., None], 1)
        sums, tokens = (np.take_along_axis(x, kept, 1) for x in (candidate_sums, token))
        origin = np.take_along_axis(origin, kept, 1)
        rows = (origin + num_beams * np.arange(size)[:, None]).reshape(-1)
        cache = reorder_rows(cache, ops.array(rows, "int32"))
        steps.append(Step(alive, sums, grown[:, first], end_sums))
    return steps


def steps_until_done(
    steps: list[Step], rule: EarlyStopping, penalty: LengthPenalty, num_return: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return after how many steps a rule stops, and the best score at that time, both `(B,)`."""
    size, num_beams = steps[0].alive_sums.shape
    finished = np.full((size, num_beams), IMPOSSIBLE)
    number, length = np.zeros(size, int), np.zeros(size, int)
    for index, step in enumerate(steps):
        is_running = length == 0
        ends = step.end_sums > IMPOSSIBLE / 2
        scores = step.end_sums / float(penalty.divisor(index + 1))
        scores = np.where(ends & is_running[:, None], scores, IMPOSSIBLE)
        finished = -np.sort(-np.concatenate([finished, scores], 1), axis=1)[:, :num_beams]
        number += (ends & is_running[:, None]).sum(1)
        progress = Progress(
            ops.array(step.alive_sums.max(1), "float32"),
            ops.array(index + 1, "int32"),
            len(steps),
            ops.array(finished, "float32"),
            ops.array(number, "int32"),
            num_return,
        )
        done = ops.convert_to_numpy(are_done(rule, progress, penalty))
        length[is_running & done] = index + 1
    # At the last position the unfinished hypotheses of what is not done count, too.
    unfinished = steps[-1].alive_sums.max(1) / float(penalty.divisor(len(steps)))
    unfinished = np.where(length == 0, unfinished, IMPOSSIBLE)
    best = np.maximum(finished[:, 0], unfinished)
    return np.where(length == 0, len(steps), length), best


def best_score(steps: list[Step], penalty: LengthPenalty) -> np.ndarray:
    """Return the best score that a beam that never stops has seen, `(B,)`."""
    divisors = [float(penalty.divisor(length)) for length in range(1, len(steps) + 1)]
    scores = [step.end_sums / divisor for step, divisor in zip(steps, divisors, strict=True)]
    return np.concatenate([*scores, steps[-1].alive_sums / divisors[-1]], 1).max(1)


def was_dropped(steps: list[Step], output: list[int], sentence: int, end_id: int) -> bool:
    """Return whether a beam lost an output on the way."""
    for length, step in enumerate(steps[: len(output)], start=1):
        begun = output[:length]
        held = step.ends if begun[-1] == end_id else step.alive
        if begun not in held[sentence].tolist():
            return True
    return False


def batches(
    run: TrainedRun, texts: list[str], size: int, longest_source: int
) -> Iterator[tuple[np.ndarray, list[int]]]:
    """The sources as ids, sentences of like length together, and their places in the split."""
    config = run.model.config
    rows = [
        [*run.tokenizers.source.encode(text)[: longest_source - 1], config.end_id] for text in texts
    ]
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    width = max(map(len, rows))  # one, so that each search is compiled once
    for start in range(0, len(rows), size):
        places = order[start : start + size]
        source = np.full((len(places), width), config.pad_id)
        for row, place in zip(source, places, strict=True):
            row[: len(rows[place])] = rows[place]
        yield source, places


def search_all(
    run: TrainedRun,
    sources: list[tuple[np.ndarray, list[int]]],
    strategy: Any,
    longest: int,
    jit_compile: bool,
) -> Found:
    """Outputs and scores of the sentences, at their places in the split."""
    number = 1 + max(place for _, places in sources for place in places)
    ids, scores = np.zeros((number, longest), int), np.zeros(number)
    for source, places in sources:
        found, found_scores = run.model.generate(
            source, strategy, max_length=longest, jit_compile=jit_compile
        )
        several = found.ndim == 3
        ids[places] = found[:, 0] if several else found
        scores[places] = found_scores[:, 0] if several else found_scores
    return Found(ids, scores)


def timed(
    run: TrainedRun,
    sources: list[tuple[np.ndarray, list[int]]],
    num_beams: int,
    penalty: LengthPenalty,
    num_return: int,
    longest: int,
    rounds: int,
) -> dict[EarlyStopping, float]:
    """The time of each rule, as a share of that of `True`."""

    def contender(rule: EarlyStopping) -> Callable[[], Found]:
        strategy = Beam(num_beams, penalty, num_return, early_stopping=rule)
        return lambda: search_all(run, sources, strategy, longest, True)

    timings = measure.in_turn(
        {str(rule): contender(rule) for rule in RULES}, rounds=rounds, warm_up=1
    )
    first = timings[str(RULES[0])].wall_ms
    return {rule: measure.median_ratio(timings[str(rule)].wall_ms, first) for rule in RULES}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run-dir", type=Path, required=True, help="a run of `train`")
    parser.add_argument("--split", default="test")
    parser.add_argument("--num-beams", type=int, default=4)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--penalties", nargs="+", choices=PENALTIES, default=list(PENALTIES))
    parser.add_argument("--max-length", type=int, help="the run's, unless given")
    parser.add_argument("--rounds", type=int, default=0, help="timed passes; 0 for none")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args()

    run, num_beams = load_run(RunDirectory(arguments.run_dir)), arguments.num_beams
    config = run.model.config
    longest = arguments.max_length or run.config.evaluation.max_length or config.max_length
    texts, references = (
        side[: arguments.sentences] for side in load_texts(run.config, arguments.split)
    )
    sources = list(batches(run, texts, 64, config.max_length))
    traces = [
        (never_stopping(run.model, source, num_beams, longest), places)
        for source, places in sources
    ]
    print(f"{len(texts)} sentences of {arguments.split!r}, room for {longest} tokens")
    head = "| penalty | rule | worse than greedy | of these dropped | worse than the best seen "
    head += "| no end | BLEU | steps, N = 1 | N = K | time, N = 1 | N = K |"
    print(head + "\n|---|---" + "|---:" * 9 + "|", flush=True)
    figures = []
    for name in arguments.penalties:
        penalty = PENALTIES[name]
        greedy = search_all(run, sources, Greedy(penalty), longest, False)
        outputs = [[int(t) for t in row if t != config.pad_id] for row in greedy.ids]
        dropped = np.zeros(len(texts), bool)
        best_seen = np.zeros(len(texts))
        for steps, places in traces:
            dropped[places] = [
                was_dropped(steps, outputs[place], sentence, config.end_id)
                for sentence, place in enumerate(places)
            ]
            best_seen[places] = best_score(steps, penalty)
        ratios = {
            number: timed(run, sources[::4], num_beams, penalty, number, longest, arguments.rounds)
            for number in ((1, num_beams) if arguments.rounds else ())
        }
        for rule in RULES:
            strategy = Beam(num_beams, penalty, early_stopping=rule)
            found = search_all(run, sources, strategy, longest, False)
            lengths = {}
            for number in (1, num_beams):
                told = [
                    (*steps_until_done(steps, rule, penalty, number), places)
                    for steps, places in traces
                ]
                lengths[number] = np.concatenate([each for each, _, _ in told]).mean()
                for _, scores, places in told:
                    if number == 1:
                        np.testing.assert_allclose(scores, found.scores[places], atol=ROUNDING)
            is_worse = found.scores < greedy.scores - ROUNDING
            translations = [
                run.tokenizers.target.decode(
                    t for t in row if t not in (config.pad_id, config.end_id)
                )
                for row in found.ids.tolist()
            ]
            row = {
                "penalty": name,
                "rule": rule,
                "worse than greedy": int(is_worse.sum()),
                "of these dropped": int((is_worse & dropped).sum()),
                "worse than the best seen": int((found.scores < best_seen - ROUNDING).sum()),
                "no end": int((found.ids != config.end_id).all(1).sum()),
                "BLEU": evaluate_translations(translations, references).bleu,
                "steps, N = 1": lengths[1],
                "steps, N = K": lengths[num_beams],
                **{f"time, N = {number}": each[rule] for number, each in ratios.items()},
            }
            figures.append(row)
            cells = [f"{x:.2f}" if isinstance(x, float) else str(x) for x in row.values()]
            print("| " + " | ".join(cells) + " |", flush=True)
    if arguments.json:
        measure.write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
