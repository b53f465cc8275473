"""Data diversification: two trained models translate a corpus, and a model learns from all of it.

keras-addnorm train runs/en-de --config EN_DE.toml --data FOLDER
keras-addnorm train runs/de-en --config DE_EN.toml --data FOLDER
python examples/diversify_data.py --forward runs/en-de --backward runs/de-en --to diversified
keras-addnorm train runs/en-de-diversified --start-from runs/en-de --data diversified

The training text becomes three times as long: as it was; its sources with the translations of the
forward model; its targets with what the backward model makes of them (Nguyen et al., 2020, "Data
Diversification: A Simple Strategy For Neural Machine Translation", arXiv:1911.01986; there with
several models of each direction, and from fresh weights). The other splits stay as they are. What
is trained last is one model like any other. docs/results.md says what it gave on Multi30k.

python examples/diversify_data.py --smoke    # only tries that it runs
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from keras_addnorm.basics import atomic_folder
from keras_addnorm.data import demo_pairs, load_translation
from keras_addnorm.data.strings import string_pairs
from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs.train import train
from keras_addnorm.runs.trained_run import load_run
from keras_addnorm.runs.translate import translate_texts

Pairs = list[tuple[str, str]]
Translate = Callable[[Sequence[str]], Sequence[str]]

SMOKE = {
    "tokenizer.vocabulary_size": 300,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.hidden_dim": 8,
    "training.epochs": 1,
    "training.jit_compile": False,
    "evaluation.num_beams": 1,
    "evaluation.max_length": 8,
}


def diversified(pairs: Pairs, forward: Translate, backward: Translate) -> Pairs:
    """The pairs, and each side with a translation of it; every pair once, and none half empty."""
    sources, targets = zip(*pairs, strict=True)
    together = [
        *pairs,
        *zip(sources, forward(sources), strict=True),
        *zip(backward(targets), targets, strict=True),
    ]
    return list(dict.fromkeys(pair for pair in together if all(pair)))


def with_run(directory: RunDirectory) -> Translate:
    """Translates with a trained run, by the search that its configuration asks for."""

    def translate(texts: Sequence[str]) -> list[str]:
        return [text for text, _ in translate_texts(load_run(directory), texts, verbose=1)]

    return translate


def write(splits: dict[str, Pairs], languages: tuple[str, str], to: Path) -> None:
    """Writes a folder of parallel text, a line for a sentence; all of it or nothing."""
    with atomic_folder(to) as folder:
        for split, pairs in splits.items():
            for language, texts in zip(languages, zip(*pairs, strict=True), strict=True):
                lines = "".join(" ".join(text.split()) + "\n" for text in texts)
                (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")


def diversify(
    forward: RunDirectory,
    backward: RunDirectory,
    to: Path,
    data: str | None = None,
    earlier: Sequence[tuple[str, str]] = (),
) -> Pairs:
    """Writes the diversified corpus of two runs; returns its training pairs.

    In a second round, `data` is what was there before the first one, where the runs have trained
    on more, and `earlier` is what the first one came to.
    """
    config, other = forward.read_config(), backward.read_config()
    languages, back = (config.source, config.target), (other.source, other.target)
    if languages != back[::-1]:
        raise ValueError(
            "The two runs do not translate the one into the other. Expected a backward run from "
            f"{languages[1]} to {languages[0]}. Received: {backward.path}, {back[0]} to {back[1]}."
        )
    if to.exists():
        raise FileExistsError(f"{to} exists. Expected a folder to make: give --to another name.")
    splits = {
        name: list(string_pairs(pairs))
        for name, pairs in load_translation(
            data or config.data, source=config.source, target=config.target
        ).items()
    }
    before = len(splits["train"])
    found = diversified(splits["train"], with_run(forward), with_run(backward))
    splits["train"] = list(dict.fromkeys([*found, *earlier]))
    write(splits, languages, to)
    print(f"{to}: {before:,} training pairs have become {len(splits['train']):,}.")
    return splits["train"]


def write_small_corpus(to: Path) -> None:
    """Writes fifty English and German sentences of the built-in set."""
    pairs = [(pair.source, pair.target) for pair in itertools.islice(demo_pairs("de"), 50)]
    write({"train": pairs[:40], "validation": pairs[40:]}, ("en", "de"), to)


def smoke() -> Pairs:
    """The whole way, with two models that have learned nothing."""
    languages = ("en", "de")
    with tempfile.TemporaryDirectory() as folder:
        small, runs = Path(folder, "small"), []
        write_small_corpus(small)
        for source, target in (languages, languages[::-1]):
            runs.append(RunDirectory(Path(folder, f"{source}-{target}")))
            direction = {"data": str(small), "source": source, "target": target}
            train(RunConfig().replace({**SMOKE, **direction}), runs[-1], verbose=0)
        return diversify(*runs, Path(folder, "diversified"))


def main(arguments: argparse.Namespace) -> Pairs:
    """Diversifies and returns the training pairs."""
    if arguments.smoke:
        return smoke()
    forward, backward = RunDirectory(arguments.forward), RunDirectory(arguments.backward)
    return diversify(forward, backward, arguments.to)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--forward", type=Path, help="the run from source to target")
    made.add_argument("--backward", type=Path, help="the run from target to source")
    made.add_argument("--to", type=Path, help="the folder to make")
    made.add_argument("--smoke", action="store_true", help="only try that it runs")
    return made


if __name__ == "__main__":
    chosen = parser().parse_args()
    if not chosen.smoke and None in (chosen.forward, chosen.backward, chosen.to):
        parser().error("expected --forward, --backward and --to, or --smoke alone")
    main(chosen)
