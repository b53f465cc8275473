"""Every residual scheme on translation: trained alike, with its own learning rate, and looked into.

python examples/study_schemes.py --minutes 60    # resumes; ten hours in all
python examples/study_schemes.py --self-attention ssru    # some schemes with SSRU decoders
python examples/study_schemes.py --translations  # also trains again what kept no translations
python examples/study_schemes.py --page          # writes the page from what is on record
python examples/study_schemes.py --quick         # only tries that it runs

Each training is a process on one core, as many at once as `--processes` says. With --data FOLDER
(train.en, train.de, val.en, val.de) the most interesting schemes are trained on Multi30k, too.
docs/study_schemes.md is the page.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from claims.records import Records
from study.other_decoders import Decoder, DecoderPlan
from study.trial import DEMO, MULTI30K, Outcome, Plan, Scale, Trial, corpus_key

from keras_addnorm import schemes

FULL = Plan(
    schemes=("pre_ln", *(name for name in schemes.names() if name not in ("pre_ln", "peri_ln"))),
    norms=("rms_norm", "dynamic_tanh", "derf", "seed_norm", "bhyt"),
    multi30k=(
        "pre_ln",
        "post_ln",
        "deep_norm",
        "sandwich_ln",
        "keel",
        "b2t",
        "resi_dual",
        "hyper_connections",
        "mhc_lite",
        "attention_residuals",
        "hybrid_norm",
        "t_fixup",
    ),
)
SSRU = DecoderPlan(
    FULL,
    "ssru",
    schemes=(
        "pre_ln",
        "post_ln",
        "deep_norm",
        "rezero",
        "sandwich_ln",
        "admin",
        "t_fixup",
        "layer_scale",
    ),
    decoders=(
        Decoder("ssru", "pre_ln"),
        Decoder("ssru", "post_ln"),
        Decoder("multi_head_attention", "pre_ln"),
        Decoder("average_attention", "pre_ln"),
        Decoder("ssru", "pre_ln", "rms_norm"),
    ),
)
QUICK = Plan(schemes=("pre_ln", "post_ln"), depths=(2,), rates=(0.01,), seeds=(1,))
SMALL = Scale(hidden_dim=8, num_heads=2, vocabulary_size=300, batch_size=4, updates=3, warmup=2)


class Study:
    """The trials of a plan, done by processes and kept on record.

    Args:
        plan: What to train.
        scale: How large.
        records: Where results are kept.
        data: Where the sentences of each corpus are; a corpus that is not here is left out.
        folder: Where prepared sentences are kept.
        is_timed: Whether times and memory are kept; not where trials share one accelerator.
        wants_translations: Whether trials whose translations the page tests are done again if they
            are on record without.
    """

    def __init__(
        self,
        plan: Plan | DecoderPlan,
        scale: Scale,
        records: Records,
        data: dict[str, str],
        folder: Path,
        is_timed: bool = True,
        wants_translations: bool = False,
    ) -> None:
        self.plan, self.scale, self.records = plan, scale, records
        self.data, self.folder, self.is_timed = data, folder, is_timed
        self.wants_translations = wants_translations

    def with_plan(self, plan: Plan | DecoderPlan) -> Study:
        """The same with other trials, none of which is done again."""
        return Study(plan, self.scale, self.records, self.data, self.folder, self.is_timed)

    def find(self, trial: Trial) -> Outcome | None:
        """What is on record of a trial."""
        return self.records.find(trial.key(self.scale))

    def floor(self) -> float:
        """What a model of word frequencies alone reaches on the built-in set, in nats a token."""

        def measure() -> Outcome:
            from study.corpus import Corpus

            corpus = Corpus.load(self.data[DEMO], self.scale, self.folder)
            return {"loss": corpus.train.floor()}

        key = {"name": "floor", **corpus_key(DEMO, self.scale)}
        return float(self.records.get_or_measure(key, measure)["loss"])

    def means_at_start(self, trial: Trial) -> list[dict[str, Any]]:
        """The means of the decoder's stream before a training, sublayer by sublayer."""

        def measure() -> Outcome:
            from study.corpus import Corpus
            from study.measure import means_at_start

            corpus = Corpus.load(self.data[trial.corpus], self.scale, self.folder)
            return {"means": means_at_start(trial, self.scale, corpus)}

        key = {"name": "means at the start", **trial.key(self.scale)}
        found: list[dict[str, Any]] = self.records.get_or_measure(key, measure)["means"]
        return found

    def references(self) -> list[str]:
        """What the translations of the built-in set are scored against."""

        def measure() -> Outcome:
            from study.corpus import Corpus

            corpus = Corpus.load(self.data[DEMO], self.scale, self.folder)
            return {"texts": corpus.references[: self.scale.scored]}

        key = {"name": "references", **corpus_key(DEMO, self.scale)}
        found: list[str] = self.records.get_or_measure(key, measure)["texts"]
        return found

    def missing(self) -> list[Trial]:
        """The trials that can be done now, in the order of the plan."""
        trials = [trial for _, stage in self.plan.stages(self.find) for trial in stage]
        again = self._without_translations()
        return [
            trial
            for trial in dict.fromkeys(trials)
            if trial.corpus in self.data and (self.find(trial) is None or trial in again)
        ]

    def _without_translations(self) -> set[Trial]:
        """The trials that are to be done again, as their translations were not kept."""
        if not self.wants_translations:
            return set()
        rates = {name: self.plan.best_rate(name, self.find) for name in self.plan.schemes}
        trials = {
            self.plan.trial(name, self.plan.middle, rate, self.plan.seeds[0])
            for name, rate in rates.items()
            if rate is not None
        }
        found = {trial: self.find(trial) for trial in trials}
        return {
            trial
            for trial, one in found.items()
            if one and one["bleu"] is not None and not one.get("translations")
        }

    def run(self, processes: int, minutes: float) -> list[str]:
        """Do what is missing; no trial starts when the time is over.

        Args:
            processes: How many trials at once, each on a core of its own.
            minutes: The time.

        Returns:
            What went wrong, a line each.
        """
        end, failed = time.monotonic() + 60 * minutes, {}
        cores = sorted(os.sched_getaffinity(0))[:processes]
        with concurrent.futures.ThreadPoolExecutor(len(cores)) as pool:
            running: dict[concurrent.futures.Future[Outcome], tuple[Trial, int]] = {}
            while True:
                busy = {trial for trial, _ in running.values()}
                waiting = [t for t in self.missing() if t not in busy and t not in failed]
                free = [core for core in cores if core not in {c for _, c in running.values()}]
                for trial, core in zip(waiting, free, strict=False):
                    if time.monotonic() < end:
                        running[pool.submit(self._in_a_process, trial, core)] = trial, core
                if not running:
                    break
                done, _ = concurrent.futures.wait(
                    running, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in done:
                    trial, _ = running.pop(future)
                    try:
                        self.records.keep(trial.key(self.scale), future.result())
                    except RuntimeError as error:
                        failed[trial] = str(error)
                    said = failed.get(trial) or _summary(self.find(trial))
                    print(f"{trial}: {said}", flush=True)
        return [f"{trial}: {reason}" for trial, reason in failed.items()]

    def _in_a_process(self, trial: Trial, core: int) -> Outcome:
        """A process of its own has a memory of its own, and one core."""
        with tempfile.TemporaryDirectory() as folder:
            task, result = Path(folder, "task.json"), Path(folder, "result.json")
            described = {
                **dataclasses.asdict(trial),
                "scale": dataclasses.asdict(self.scale),
                "data": self.data[trial.corpus],
                "folder": str(self.folder),
                "core": core,
            }
            task.write_text(json.dumps(described), encoding="utf-8")
            command = [sys.executable, __file__, "--task", str(task), "--result", str(result)]
            # Rates, seeds and warm-up change no program: one trial compiles it for the next ones.
            compiled = {"JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled")}
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env=os.environ | compiled
            )
            if done.returncode:
                last = done.stderr.strip().splitlines()[-1:] or ["no message"]
                raise RuntimeError(f"ended with {done.returncode}: {last[0]}")
            outcome: Outcome = json.loads(result.read_text(encoding="utf-8"))
            if not self.is_timed:
                outcome |= {"milliseconds": None, "memory_mib": None}
            return outcome


def _summary(outcome: Outcome | None) -> str:
    assert outcome is not None
    return (
        f"loss {outcome['validation_loss']}, BLEU {outcome['bleu']}, "
        f"{outcome['milliseconds']} ms an update, {outcome['seconds']} s"
    )


def work(task: Path, result: Path) -> None:
    """Do one trial: the process of `Study.run`."""
    described: dict[str, Any] = json.loads(task.read_text(encoding="utf-8"))
    os.sched_setaffinity(0, {described.pop("core")})
    # Only now: what JAX and TensorFlow start takes as many threads as there are cores.
    from study.corpus import Corpus
    from study.measure import measure

    scale = Scale(**described.pop("scale"))
    corpus = Corpus.load(described.pop("data"), scale, Path(described.pop("folder")))
    outcome = measure(Trial(**described), scale, corpus)
    result.write_text(json.dumps(outcome), encoding="utf-8")


def main(arguments: argparse.Namespace) -> None:
    """Do what the command line says."""
    if arguments.task is not None:
        work(arguments.task, arguments.result)
        return
    plan, scale = (QUICK, SMALL) if arguments.quick else (FULL, Scale())
    decoders = DecoderPlan(QUICK, "ssru", QUICK.schemes) if arguments.quick else SSRU
    data = {DEMO: "demo/en-de", **({MULTI30K: arguments.data} if arguments.data else {})}
    records = Records(arguments.records)
    study = Study(
        plan,
        scale,
        records,
        data,
        arguments.folder,
        is_timed=not arguments.untimed,
        wants_translations=arguments.translations,
    )
    failed = []
    if not arguments.page:
        done = study.with_plan(decoders) if arguments.self_attention == "ssru" else study
        failed = done.run(arguments.processes, arguments.minutes)
    from study.page import write

    write(study, decoders, arguments.out)
    print(f"Written: {arguments.out}")
    if failed:
        sys.exit("\n".join(["Some trials failed, and will be tried again:", *failed]))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--minutes", type=float, default=600, help="start no trial afterwards")
    made.add_argument(
        "--self-attention",
        choices=("multi_head_attention", "ssru"),
        default="multi_head_attention",
        help="what the decoders have; ssru takes the rates that are on record of the other",
    )
    made.add_argument("--processes", type=int, default=2, help="trials at once")
    made.add_argument("--untimed", action="store_true", help="trials share an accelerator")
    made.add_argument("--data", help="the folder of Multi30k; without it, it is left out")
    made.add_argument(
        "--translations",
        action="store_true",
        help="train again what is on record without the translations that the page tests",
    )
    made.add_argument("--page", action="store_true", help="train nothing, write the page")
    made.add_argument("--quick", action="store_true", help="only try that it runs")
    here = Path(__file__).parent
    made.add_argument("--records", type=Path, default=here / "study" / "records.jsonl")
    made.add_argument("--folder", type=Path, default=Path("runs/study_schemes"))
    made.add_argument("--out", type=Path, default=here.parent / "docs" / "study_schemes.md")
    # One trial, for the processes that this one starts.
    made.add_argument("--task", type=Path, help=argparse.SUPPRESS)
    made.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    main(parser().parse_args())
