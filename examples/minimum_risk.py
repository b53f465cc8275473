"""Minimum risk training: a trained model learns which of its own translations are better.

keras-addnorm train runs/en-de --config examples/multi30k_en_de.toml --data FOLDER
python examples/minimum_risk.py --runs runs/en-de --to runs/en-de-risk
keras-addnorm evaluate runs/en-de-risk

A beam search finds eight translations of each training sentence, and each gets its sentence BLEU
as a reward. Two epochs at a low rate then move probability to the better translations
(`training.MinimumRisk`). Further runs in `--runs` add their translations as candidates; the first
run is the one that is trained. The result is a run like any other. Candidates are written to its
folder as they are found, so a second start resumes after them.

docs/results.md says what it gave on Multi30k.

python examples/minimum_risk.py --smoke    # only tries that it runs
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
from diversify_data import SMOKE, write_small_corpus
from sacrebleu.metrics.bleu import BLEU

from keras_addnorm.basics.argument_checks import is_number, to_file
from keras_addnorm.basics.errors import UserError
from keras_addnorm.basics.integrity import digest_of_values
from keras_addnorm.basics.text import parse_json
from keras_addnorm.data import BatchesOfManySizes
from keras_addnorm.data.buckets import Bucket, bucket_of
from keras_addnorm.decoding import Beam, translate
from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs.directory import write_text
from keras_addnorm.runs.text_data import load_texts, save_tokenizers
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import TrainedRun, digest_of_run, load_run, save_model_config
from keras_addnorm.runs.translate import translate_texts
from keras_addnorm.runs.weight_files import save_best_weights
from keras_addnorm.training import Adam, MinimumRisk, TranslationScore, bleu_tokenizer

SENTENCES_AT_ONCE = 1024


@dataclasses.dataclass(frozen=True)
class Settings:
    """What can be chosen; these are the values of docs/results.md."""

    num_beams: int = 8
    candidates: int = 5
    sharpness: float = 0.5
    reference_weight: float = 0.3
    label_smoothing: float = 0.1
    epochs: int = 2
    tokens_per_batch: int = 6600  # of references and candidates, padding included
    peak_learning_rate: float = 0.0005
    warmup_steps: int = 50
    seed: int = 5
    jit_compile: bool = True


SMOKE_SETTINGS = Settings(num_beams=2, candidates=2, warmup_steps=1, jit_compile=False)


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A source, its reference and the candidates, as ids without start and end."""

    source: list[int]
    rows: list[list[int]]  # the reference first
    rewards: list[float]

    @property
    def length(self) -> int:
        """The positions that the longest of them needs, with its start or end."""
        return 1 + max(map(len, [self.source, *self.rows]))


def found_translations(
    run: TrainedRun, sources: Sequence[str], file: Path, settings: Settings
) -> list[dict[str, float]]:
    """The translations of each source and their scores; what the file has is not searched again."""
    lines = to_file(file).read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
    try:
        found = list(map(parse_json, lines))
        is_sound = all(all(map(is_number, each.values())) for each in found)
    except (ValueError, AttributeError):
        is_sound = False
    if not is_sound:
        raise UserError(
            f"{str(file)!r} holds something else than translations and their scores. Expected "
            "lines as this has written them. Remove it, to have them searched again."
        )
    write_text(file, "".join(line + "\n" for line in lines))  # without the half of a last line
    bar = keras.utils.Progbar(len(sources), unit_name="sentence")
    bar.update(len(found))
    beam = Beam(
        num_beams=settings.num_beams,
        num_return=settings.num_beams,
        length_penalty=run.config.evaluation.length_penalty,
    )
    with file.open("a", encoding="utf-8") as appended:
        for start in range(len(found), len(sources), SENTENCES_AT_ONCE):
            some = translate(
                run.model,
                run.tokenizers,
                sources[start : start + SENTENCES_AT_ONCE],
                beam,
                max_length=run.config.evaluation.max_length,
                jit_compile=settings.jit_compile,
            )
            found += [{each.text: each.score for each in n_best} for n_best in some.n_best]
            appended.writelines(json.dumps(each) + "\n" for each in found[start:])
            appended.flush()
            bar.update(len(found))
    return found


def chosen(
    found: Sequence[dict[str, float]], reference: str, number: int, tokenizer: str = "13a"
) -> tuple[list[str], list[float]]:
    """The most probable candidates and, in any case, that of the highest reward; with rewards."""
    scores = {text: score for each in found for text, score in each.items() if text != reference}
    bleu = BLEU(smooth_method="add-k", smooth_value=1.0, effective_order=True, tokenize=tokenizer)
    rewards = {text: bleu.sentence_score(text, [reference]).score / 100 for text in scores if text}
    probable = sorted(rewards, key=lambda text: -scores[text])
    best = max(probable, key=lambda text: rewards[text], default=None)
    if best in probable[number:]:
        probable.insert(number - 1, best)
    return probable[:number], [rewards[text] for text in probable[:number]]


class Batches(BatchesOfManySizes):
    """Sentences of like length, each with a reference and its candidates; in few shapes."""

    def __init__(self, sentences: Sequence[Sentence], run: TrainedRun, settings: Settings) -> None:
        super().__init__()
        self.settings, self.ids = settings, run.model.config
        self.rows = 1 + settings.candidates
        self.buckets: dict[Bucket, list[Sentence]] = {}
        filled = [sentence for sentence in sentences if sentence.source and sentence.rows[0]]
        bucketing = dataclasses.replace(
            run.config.training.bucketing,
            tokens_per_batch=max(1, settings.tokens_per_batch // self.rows),
            rows_multiple_of=1,
        )
        lengths = np.array([sentence.length for sentence in filled])
        buckets = bucketing.buckets_for(lengths)
        for sentence, index in zip(filled, bucket_of(lengths, buckets), strict=True):
            if index < len(buckets):
                self.buckets.setdefault(buckets[index], []).append(sentence)
        self.kept = sum(map(len, self.buckets.values()))
        self.epoch = 0
        self.plan = self.planned()

    def planned(self) -> list[tuple[Bucket, list[Sentence]]]:
        """The batches of an epoch, as buckets and sentences; they follow from the seed."""
        order = random.Random(f"{self.settings.seed} {self.epoch}")
        plan = []
        for bucket, sentences in self.buckets.items():
            size = bucket.batch_size
            mixed = order.sample(sentences, len(sentences))
            plan += [(bucket, mixed[i : i + size]) for i in range(0, len(mixed), size)]
        order.shuffle(plan)
        return plan

    def __len__(self) -> int:
        return len(self.plan)

    def batch_at(self, index: int):
        bucket, sentences = self.plan[index]
        length = bucket.length
        shape = (bucket.batch_size, self.rows, length)
        source, target, labels = (np.full(shape, self.ids.pad_id, "int32") for _ in range(3))
        rewards = np.zeros(shape[:2], "float32")
        for i, sentence in enumerate(sentences):
            source[i, :, : len(sentence.source) + 1] = [*sentence.source, self.ids.end_id]
            rewards[i, : len(sentence.rewards)] = sentence.rewards
            for j, row in enumerate(sentence.rows):
                target[i, j, : len(row) + 1] = [self.ids.start_id, *row]
                labels[i, j, : len(row) + 1] = [*row, self.ids.end_id]
        source, target, labels = (x.reshape(-1, length) for x in (source, target, labels))
        return {"source": source, "target": target}, labels, rewards.reshape(-1)

    def on_epoch_end(self) -> None:
        self.epoch += 1
        self.plan = self.planned()


def sentences_of(
    runs: Sequence[TrainedRun], candidates: Path, settings: Settings
) -> list[Sentence]:
    """The training sentences of the first run, with candidates of all, as ids of the first."""
    first = runs[0]
    sources, references = load_texts(first.config, "train")
    found = []
    for run in runs:
        print(f"Translating {len(sources):,} sentences with {run.directory.path}.")
        name = re.sub(r"\W+", "-", str(run.directory.path))
        # Of other weights, sentences or settings, they would be taken for those of these.
        of = digest_of_values([digest_of_run(run.directory, run.config), sources])[:12]
        file = candidates / f"candidates-{name}-beam-{settings.num_beams}-{of}.jsonl"
        found.append(found_translations(run, sources, file, settings))
    encode = first.tokenizers.target.encode_batch
    tokenizer = bleu_tokenizer(first.config.target, first.config.evaluation.bleu_tokenizer)
    sentences = []
    for source, reference, each in zip(
        first.tokenizers.source.encode_batch(sources),
        references,
        zip(*found, strict=True),
        strict=True,
    ):
        texts, rewards = chosen(each, reference, settings.candidates, tokenizer)
        sentences.append(Sentence(source, encode([reference, *texts]), [1.0, *rewards]))
    average = np.mean([reward for sentence in sentences for reward in sentence.rewards[1:]])
    print(f"The mean reward of the candidates is {average:.3f}.")
    return sentences


def minimum_risk(
    directories: Sequence[RunDirectory],
    to: RunDirectory,
    settings: Settings,
    candidates: Path | None = None,
) -> keras.callbacks.History:
    """Trains the first run's model further, with candidates of all; writes a new run.

    The candidates go to a folder of their own where several trainings are to share them.
    """
    if to.best_weights.exists():
        raise FileExistsError(
            f"{to.path} holds a trained run. Expected a folder to make: give --to another name."
        )
    keras.utils.set_random_seed(settings.seed)
    candidates = candidates or to.path
    for folder in (to.path, candidates):
        folder.mkdir(parents=True, exist_ok=True)
    runs = [load_run(directory) for directory in directories]
    first = runs[0]
    batches = Batches(sentences_of(runs, candidates, settings), first, settings)
    print(f"{batches.kept:,} sentences in {len(batches):,} batches.")
    rate = keras.optimizers.schedules.CosineDecay(
        0.0,
        max(1, settings.epochs * len(batches) - settings.warmup_steps),
        warmup_target=settings.peak_learning_rate,
        warmup_steps=settings.warmup_steps,
    )
    first.model.compile(
        Adam(rate, beta_2=0.98, epsilon=1e-9),
        MinimumRisk(
            batches.rows,
            settings.sharpness,
            settings.reference_weight,
            settings.label_smoothing,
            first.model.config.pad_id,
        ),
        jit_compile=settings.jit_compile,
    )
    score = TranslationScore(
        *load_texts(first.config, "validation"),
        lambda _, texts: [text for text, _ in translate_texts(first, texts)],
        language=first.config.target,
        tokenizer=first.config.evaluation.bleu_tokenizer,
    )
    history = first.model.fit(batches, epochs=settings.epochs, shuffle=False, callbacks=[score])
    save_tokenizers(first.tokenizers, to)
    save_model_config(first.model.config, to)
    to.write_config(first.config)
    save_best_weights(first.model, to)
    print(f"Done: keras-addnorm evaluate {to.path}")
    return history


def small_runs(folder: Path) -> list[RunDirectory]:
    """Two models that have learned nothing, of a few sentences."""
    data = folder / "data"
    write_small_corpus(data)
    runs = [RunDirectory(folder / name) for name in ("one", "other")]
    for seed, run in enumerate(runs):
        changes = {**SMOKE, "data": str(data), "source": "en", "target": "de"}
        train(RunConfig().replace({**changes, "training.seed": seed}), run, verbose=0)
    return runs


def smoke() -> keras.callbacks.History:
    """The whole way with such models."""
    with tempfile.TemporaryDirectory() as folder:
        runs = small_runs(Path(folder))
        return minimum_risk(runs, RunDirectory(Path(folder, "new")), SMOKE_SETTINGS)


def main(arguments: argparse.Namespace) -> keras.callbacks.History:
    """Trains and returns what `fit` found."""
    if arguments.smoke:
        return smoke()
    names = [field.name for field in dataclasses.fields(Settings)]
    settings = Settings(**{name: getattr(arguments, name) for name in names})
    return minimum_risk(
        [RunDirectory(path) for path in arguments.runs], RunDirectory(arguments.to), settings
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--runs", type=Path, nargs="+", help="the run, and others for candidates")
    made.add_argument("--to", type=Path, help="the run directory to make")
    made.add_argument("--smoke", action="store_true", help="only try that it runs")
    for field in dataclasses.fields(Settings):
        kind = type(field.default)
        made.add_argument(
            "--" + field.name.replace("_", "-"),
            default=field.default,
            help=f"(default: {field.default})",
            **({"action": argparse.BooleanOptionalAction} if kind is bool else {"type": kind}),
        )
    return made


if __name__ == "__main__":
    given = parser().parse_args()
    if not given.smoke and None in (given.runs, given.to):
        parser().error("expected --runs and --to, or --smoke alone")
    main(given)
