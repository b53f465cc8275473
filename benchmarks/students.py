"""A teacher and its students: quality, sentences a second and size, as one table.

The teacher translates with a beam of five and greedily; each student greedily, with all target
tokens and with a shortlist, and with a beam of two. All are scored on the whole test set, and timed
in turn on a part of it; the ratios of the rounds to the teacher's beam are taken, and their medians
printed. Compiling is not timed. A run whose kernels and tables are on the grid of eight bits counts
a byte for each of their weights; it computes in float32 like all others.

    taskset -c 0 python benchmarks/students.py runs/teacher runs/student runs/student/eight_bits
    taskset -c 0 python benchmarks/students.py runs/teacher runs/student --no-xla
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import measure

from keras_addnorm.decoding import translate
from keras_addnorm.runs.distillation.comparison import size_of
from keras_addnorm.runs.text_data import load_pairs
from keras_addnorm.runs.trained_run import TrainedRun, load_run
from keras_addnorm.training import evaluate_translations

BEAM = "beam 5"
TEACHER = {BEAM: {"num_beams": 5}, "greedy": {"num_beams": 1}}


@dataclasses.dataclass(frozen=True)
class Row:
    """A run with a search."""

    run: TrainedRun
    search: str
    batch_size: int
    jit_compile: bool

    def translations(self, texts: list[str]) -> list[str]:
        return translate(
            self.run.model,
            self.run.tokenizers,
            texts,
            search=self.run.search(),
            batch_size=self.batch_size,
            jit_compile=self.jit_compile,
        ).texts


def rows(paths: list[str], arguments: argparse.Namespace) -> list[Row]:
    """The teacher's searches, then those of each student."""
    found = []
    for number, path in enumerate(paths):
        run = load_run(path)
        searches: dict[str, dict[str, Any]] = TEACHER
        if number:
            small = f"greedy, shortlist {arguments.shortlist}"
            searches = {
                "greedy": {"num_beams": 1},
                small: {"num_beams": 1, "shortlist": arguments.shortlist},
                "beam 2": {"num_beams": 2},
            }
        for name, settings in searches.items():
            chosen = {f"evaluation.{key}": value for key, value in settings.items()}
            one = dataclasses.replace(run, config=run.config.replace(chosen))
            found.append(Row(one, name, arguments.batch_size, arguments.xla))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the teacher's run, then students'")
    parser.add_argument("--data", help="a corpus with `test`; by default that of the last run")
    parser.add_argument("--sentences", type=int, default=200, help="how many are timed")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--shortlist", type=int, default=1024, help="target tokens of a batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-xla", dest="xla", action="store_false")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args()

    contenders = rows(arguments.runs, arguments)
    config = contenders[-1].run.config
    if arguments.data:
        config = config.replace({"data": arguments.data})
    pairs = list(load_pairs(config, "test", keep_every_pair=True))
    sources, references = [list(side) for side in zip(*pairs, strict=True)]
    timed = sources[: arguments.sentences]

    names = [f"{row.run.directory.path}, {row.search}" for row in contenders]
    scores = [
        evaluate_translations(
            row.translations(sources),
            references,
            language=config.target,
            tokenizer=config.evaluation.bleu_tokenizer,
        )
        for row in contenders
    ]
    timings = measure.in_turn(
        {
            name: lambda row=row: row.translations(timed)
            for name, row in zip(names, contenders, strict=True)
        },
        rounds=arguments.rounds,
        warm_up=1,
    )
    reference = timings[names[0]].wall_ms
    figures = {}
    print("| run | search | BLEU | chrF | sentences/s | × | MB |\n|---|---|--:|--:|--:|--:|--:|")
    for name, row, score in zip(names, contenders, scores, strict=True):
        timing = timings[name]
        # How many times as fast as the teacher's beam.
        ratio = 1 / measure.median_ratio(timing.wall_ms, reference)
        speed, megabytes = 1000 * len(timed) / timing.median_ms, size_of(row.run.model) / 1e6
        figures[name] = {
            **timing.to_dict(),
            "bleu": score.bleu,
            "chrf": score.chrf,
            "sentences_per_second": speed,
            "ratio": ratio,
            "megabytes": megabytes,
        }
        print(
            f"| {row.run.directory.path} | {row.search} | {score.bleu:.2f} | {score.chrf:.2f} | "
            f"{speed:.1f} | {ratio:.1f} | {megabytes:.2f} |",
            flush=True,
        )
    print(f"{len(os.sched_getaffinity(0))} cores; BLEU {scores[0].bleu_signature}")
    if arguments.json:
        measure.write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
