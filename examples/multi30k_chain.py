"""All trainings behind the best result of docs/results.md, in one resumable command.

python examples/multi30k_chain.py --data FOLDER --runs runs/chain
python examples/multi30k_chain.py --smoke    # only tries that it runs

FOLDER is that of multi30k_en_de.toml, and one model comes out, of the size of that recipe. The
times in docs/results.md add up to ten hours on two cores. Each step is a run or a folder under
RUNS, made of those before it:

1. `forward`, the recipe with R-Drop, and `backward`, from German to English;
2. `text-1`, the corpus as these two diversify it (diversify_data.py), on which training continues;
3. `text-2`, the same once more, on which `forward-3` is the model so far;
4. `risk-1` and `risk-2`, minimum risk trainings of that model (minimum_risk.py), the second one
   with candidates of a model with another vocabulary, too (`sampled`);
5. `best`, the mean of the two; the validation set chooses its length penalty.

Then the test set is translated. The same command again resumes where the last one stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diversify_data import SMOKE, diversify, write_small_corpus
from minimum_risk import SMOKE_SETTINGS, minimum_risk
from minimum_risk import Settings as RiskSettings

from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs.evaluate import Evaluation, evaluate, summary
from keras_addnorm.runs.text_data import load_texts
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import load_run
from keras_addnorm.runs.weight_files import save_average

HERE = Path(__file__).parent
THERE, BACK = HERE / "multi30k_en_de.toml", HERE / "multi30k_de_en.toml"
EPOCHS = "training.epochs"
LENGTH_PENALTIES = (1.0, 1.4, 2.0, 3.0, 4.0)

Settings = dict[str, Any]
"""Fields of a `RunConfig` by their dotted names."""

R_DROP = {
    "training.r_drop": 2.0,
    "training.tokens_per_batch": 2048,
    EPOCHS: 50,
    "training.cooldown_epochs": 8,
    "training.average_last": 6,
}
NO_R_DROP = {"training.r_drop": 0.0, "training.tokens_per_batch": 4096}
BACKWARD = {EPOCHS: 10, "training.cooldown_epochs": 4, "training.average_last": 1}
SAMPLED = {
    "tokenizer.vocabulary_size": 10_000,
    "training.subword_sampling": 0.05,
    EPOCHS: 70,
}
NOT_SAMPLED = {"training.subword_sampling": 0.0, "training.peak_learning_rate": 0.002}
OTHER_CANDIDATES = RiskSettings(seed=7, candidates=7, tokens_per_batch=8800)


@dataclasses.dataclass(frozen=True)
class Chain:
    """The steps, with where they are and how large they are.

    Args:
        data: The corpus, as `RunConfig.data` says it.
        runs: The folder of the steps.
        small: Settings that replace those of each training, to try that it runs.
    """

    data: str
    runs: Path
    small: Settings = dataclasses.field(default_factory=dict)

    def trained(self, name: str, recipe: Path, settings: Settings) -> RunDirectory:
        """A run with the settings of a file, and others."""
        config = RunConfig.read(recipe).replace({"data": self.data, **settings, **self.small})
        return self._train(RunDirectory(self.runs / name), config)

    def further(
        self, before: RunDirectory, name: str, epochs: int, settings: Settings
    ) -> RunDirectory:
        """A copy of a run that trains for some epochs more, with other settings."""
        done, epochs = before.read_config().training.epochs, self.small.get(EPOCHS, epochs)
        to = self.copied(before, name, {**settings, **self.small, EPOCHS: done + epochs})
        return self._train(to, to.read_config())

    def copied(self, before: RunDirectory, name: str, settings: Settings) -> RunDirectory:
        """A copy of a run with other settings; what is there already stays as it is."""
        to = RunDirectory(self.runs / name)
        if not to.path.exists():
            with tempfile.TemporaryDirectory(dir=self.runs) as folder:
                copy = RunDirectory(shutil.copytree(before.path, Path(folder, name)))
                copy.write_config(before.read_config().replace(settings))
                os.rename(copy.path, to.path)
        return to

    def diversified(
        self, name: str, forward: RunDirectory, backward: RunDirectory, earlier: str | None = None
    ) -> str:
        """The folder of a corpus that two runs have diversified."""
        to = self.runs / name
        if not to.exists():
            config = forward.read_config()
            pairs = load_texts(config.replace({"data": earlier}), "train") if earlier else ((), ())
            diversify(forward, backward, to, self.data, list(zip(*pairs, strict=True)))
        return str(to)

    def at_lower_risk(
        self, name: str, runs: Sequence[RunDirectory], settings: RiskSettings
    ) -> RunDirectory:
        """A minimum risk training of the first run, with candidates of all."""
        to = RunDirectory(self.runs / name)
        if not to.best_weights.exists():
            chosen = SMOKE_SETTINGS if self.small else settings
            minimum_risk(runs, to, chosen, self.runs / "candidates")
        return to

    def mean(self, name: str, runs: Sequence[RunDirectory]) -> RunDirectory:
        """A run with the mean of the weights of some."""
        to = self.copied(runs[0], name, {})
        with to.manifest.rewriting(to.averaged_weights):
            save_average([run.weights() for run in runs], to.averaged_weights)
        return to

    def _train(self, to: RunDirectory, config: RunConfig) -> RunDirectory:
        print(f"\n{to.path}", flush=True)
        train(config, to, verbose=2)
        return to


def best_model(chain: Chain) -> RunDirectory:
    """All steps but the choice of the length penalty."""
    forward = chain.trained("forward", THERE, R_DROP)
    backward = chain.trained("backward", BACK, BACKWARD)

    text = {"data": chain.diversified("text-1", forward, backward)}
    cooling = {"training.cooldown_epochs": 14}
    forward_2 = chain.further(forward, "forward-2", 14, {**NO_R_DROP, **cooling, **text})
    backward_2 = chain.further(backward, "backward-2", 4, text)

    text_2 = {"data": chain.diversified("text-2", forward_2, backward_2, earlier=text["data"])}
    cooling = {"training.cooldown_epochs": 10}
    forward_3 = chain.further(forward_2, "forward-3", 10, {**cooling, **text_2})

    sampled = chain.trained("sampled", THERE, SAMPLED)
    sampled = chain.further(sampled, "sampled-2", 10, NOT_SAMPLED)

    # Candidates are translations of the corpus alone.
    student = chain.copied(forward_3, "student", {"data": chain.data})
    others = [forward_2, forward, sampled]
    first = chain.at_lower_risk("risk-1", [student, forward_2], RiskSettings())
    second = chain.at_lower_risk("risk-2", [student, *others], OTHER_CANDIDATES)
    return chain.mean("best", [first, second])


def with_best_penalty(directory: RunDirectory) -> None:
    """Writes the length penalty to a run that gives most BLEU on its validation set."""
    run = load_run(directory)

    def bleu(penalty: float) -> float:
        config = run.config.replace({"evaluation.length_penalty": penalty})
        found = evaluate(dataclasses.replace(run, config=config), "validation").cased.bleu
        print(f"Length penalty {penalty}: {found:.2f} BLEU on the validation set", flush=True)
        return found

    best = max(LENGTH_PENALTIES, key=bleu)
    directory.write_config(run.config.replace({"evaluation.length_penalty": best}))


def small_chain(folder: Path) -> Chain:
    """One of a few sentences, and of models that learn nothing."""
    data = folder / "data"
    write_small_corpus(data)
    small = {
        **SMOKE,
        "training.cooldown_epochs": 0,
        "training.bucket_lengths": [48],
        "training.score_every": 0,
    }
    return Chain(str(data), folder / "runs", small)


def run(chain: Chain, split: str) -> Evaluation:
    """All of it; returns what a split came to."""
    directory = best_model(chain)
    with_best_penalty(directory)
    return evaluate(load_run(directory), split)


def smoke() -> Evaluation:
    """The whole way with such models."""
    with tempfile.TemporaryDirectory() as folder:
        return run(small_chain(Path(folder)), "validation")


def main(arguments: argparse.Namespace) -> Evaluation:
    """Runs the chain and returns what the test set came to."""
    if arguments.smoke:
        return smoke()
    found = run(Chain(arguments.data, arguments.runs), arguments.split)
    print(summary(found))
    return found


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--data", help="the folder of parallel text")
    made.add_argument(
        "--runs", type=Path, default=Path("runs/chain"), help="(default: %(default)s)"
    )
    made.add_argument(
        "--split",
        default="test_2016_flickr",
        help="what is translated at the end (default: %(default)s)",
    )
    made.add_argument("--smoke", action="store_true", help="only try that it runs")
    return made


if __name__ == "__main__":
    given = parser().parse_args()
    if not given.smoke and given.data is None:
        parser().error("expected --data, or --smoke alone")
    main(given)
