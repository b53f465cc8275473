"""The tries of `attacks.py` on files: sentence pairs, checkpoints, and run directories."""

from __future__ import annotations

import functools
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bit_flips
import hostile_bytes
import hostile_data
import hostile_folders
from attacks import Try

_RANDOM, _RANDOM_IN_SMOKE = 60, 2
_ENDINGS = ("tsv", "csv", "jsonl", "json", "tmx", "xlf", "po", "zip", "parquet")


def data(smoke: bool) -> Iterator[Try]:
    """Files of sentence pairs, read as `keras-addnorm data` does."""
    import keras_addnorm.data.loading  # noqa: F401

    for name in list(hostile_data.FILES)[:: 8 if smoke else 1]:
        make = functools.partial(hostile_data.write, name=name)
        yield Try("files of pairs", name, functools.partial(_read_file, name), make)
    for name, special in hostile_data.SPECIAL.items():
        yield Try("no files", name, functools.partial(_read_special, special))
    for ending in _ENDINGS:
        for seed in range(_RANDOM_IN_SMOKE if smoke else _RANDOM):
            make = functools.partial(_write_mutated_pairs, ending=ending, seed=seed)
            name = f"{ending} {seed}"
            yield Try(
                "random changes of pairs", name, functools.partial(_read_pairs_of, ending), make
            )


def _read_pairs(path: Path) -> object:
    from keras_addnorm.data.loading import open_translation
    from keras_addnorm.data.request import Request

    return sum(1 for _ in open_translation(Request(path, "en", "de")).read("train"))


def _read_file(name: str, folder: Path) -> object:
    return _read_pairs(folder / hostile_data.FILES[name][0])


def _read_special(special: Any, folder: Path) -> object:
    return _read_pairs(special(folder))


def _read_pairs_of(ending: str, folder: Path) -> object:
    return _read_pairs(folder / f"a.{ending}")


def _write_mutated_pairs(folder: Path, ending: str, seed: int) -> None:
    content = hostile_data.ordinary(ending)
    (folder / f"a.{ending}").write_bytes(
        hostile_bytes.mutated(content, random.Random(f"{ending} {seed}"))
    )


def importer(smoke: bool) -> Iterator[Try]:
    """Checkpoints, imported up to their weights: a model of this size is made in no time."""
    # What all need is imported once, and the processes are forks, made before the first tensor.
    import keras_addnorm.interop  # noqa: F401

    for name in list(hostile_folders.FOLDERS)[:: 8 if smoke else 1]:
        family = hostile_folders.FOLDERS[name][0]
        make = functools.partial(hostile_folders.write, name=name)
        yield Try("checkpoints", name, functools.partial(_import, family), make)
    with tempfile.TemporaryDirectory(prefix="families") as folder:
        for family in hostile_folders.FAMILIES:
            original = Path(folder) / family
            for seed in range(_RANDOM_IN_SMOKE if smoke else _RANDOM):
                make = functools.partial(
                    _write_mutated_folder, family=family, original=original, seed=seed
                )
                attack = functools.partial(_import, family)
                yield Try(f"random changes of {family}", str(seed), attack, make)


def _import(family: str, folder: Path) -> object:
    from keras_addnorm.interop import load_pretrained

    named = hostile_folders.NAMED.get(family)
    return type(load_pretrained(hostile_folders.opened(folder, family), named)).__name__


def _write_mutated_folder(folder: Path, family: str, original: Path, seed: int) -> None:
    if not original.exists():
        hostile_folders.write_ordinary(family, original)
    change_one_file(shutil.copytree(original, folder / family), random.Random(f"{family} {seed}"))


def change_one_file(folder: Path, chance: random.Random) -> Path:
    """Changes a file of a folder, and returns it."""
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    content = hostile_bytes.mutated(path.read_bytes(), chance)
    if path.name == "lex.bin" and len(content) >= 24 and chance.random() < 0.8:
        content = hostile_bytes.with_checksum(content)
    path.write_bytes(content)
    return path


def runs(smoke: bool) -> Iterator[Try]:
    """Run directories, checkpoints and exports, without the digests that would say so."""
    import keras_addnorm.runs.trained_run
    import keras_addnorm.serving
    import keras_addnorm.training.checkpoint_file  # noqa: F401

    with tempfile.TemporaryDirectory(prefix="runs") as name:
        folder = Path(name)
        kinds = ("run", "import", "checkpoint", "export")
        for kind in kinds:
            for seed in range(_RANDOM_IN_SMOKE if smoke else _RANDOM):
                make = functools.partial(_write_mutated_run, kind=kind, original=folder, seed=seed)
                # A model is built and TensorFlow imported: much more than what a file takes.
                yield Try(
                    f"random changes of a{'n' * (kind[0] in 'ei')} {kind}",
                    str(seed),
                    functools.partial(_read_run, kind),
                    make,
                    seconds=40,
                    megabytes=1000,
                    patience=120,
                )


def _write_mutated_run(folder: Path, kind: str, original: Path, seed: int) -> None:
    if not (original / "run").exists():
        bit_flips.make(original, ("run", "import", "export"))
    place = original / {"export": "exports", "checkpoint": "run/checkpoints"}.get(kind, kind)
    copy = shutil.copytree(place, folder / kind)
    files = bit_flips.files_of(copy) if kind != "checkpoint" else [p.name for p in copy.iterdir()]
    chance = random.Random(f"{kind} {seed}")
    path = copy / chance.choice(sorted(files))
    path.write_bytes(hostile_bytes.mutated(path.read_bytes(), chance))
    (folder / "changed").write_text(path.relative_to(copy).as_posix())


def _read_run(kind: str, folder: Path) -> object:
    name = (folder / "changed").read_text()
    return bit_flips.read(bit_flips.Subject(kind, str(folder / kind), name), verify=False)[:7]
