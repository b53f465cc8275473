"""The models of the zoo, read from the registry models.toml."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keras_addnorm.basics.errors import unknown_name
from keras_addnorm.basics.resources import read_resource
from keras_addnorm.runs.distillation.settings import TABLE
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.runs.toml_files import merge


@dataclass(frozen=True)
class ZooScores:
    """What a model scored that was made by `keras-addnorm zoo make`.

    Attributes:
        split: The split of the model's data.
        sentences: How many pairs it has.
        bleu: Corpus BLEU, cased.
        chrf: Corpus chrF, cased.
        exact_match: Percentage of translations equal to their reference.
        bleu_signature: sacreBLEU's signature of the BLEU.
        chrf_signature: sacreBLEU's signature of the chrF.
        made: When and on what it was made.
    """

    split: str
    sentences: int
    bleu: float
    chrf: float
    exact_match: float
    bleu_signature: str
    chrf_signature: str
    made: str


@dataclass(frozen=True)
class PublishedFile:
    """The archive of a model, where it was published.

    Attributes:
        address: Its address.
        sha256: Its SHA-256, as `sha256sum` prints it.
        size: Its length in bytes.
    """

    address: str
    sha256: str
    size: int


@dataclass(frozen=True)
class ZooModel:
    """A model of the zoo.

    Attributes:
        name: Its name.
        about: What it is, in a few words.
        settings: What `--config` reads to make it, in nested tables.
        teacher: The model that it is distilled from; empty of one that is trained.
        weights: How many weights it has; `None` before it was made.
        scores: What it scored; `None` before it was made.
        file: Where it was published; `None` of one that is nowhere.
    """

    name: str
    about: str
    settings: Mapping[str, Any]
    teacher: str = ""
    weights: int | None = None
    scores: ZooScores | None = None
    file: PublishedFile | None = None

    @property
    def licence(self) -> str:
        """Under which licence the weights may be used."""
        return self.config.licence

    @property
    def config(self) -> RunConfig:
        """The settings of its training; of a student, with the data of its distillation."""
        own = {key: value for key, value in self.settings.items() if key != TABLE}
        return RunConfig.from_dict(own)


@functools.cache
def models() -> Mapping[str, ZooModel]:
    """Returns the models by name.

    Returns:
        Those of the registry, in its order.

    Example:
        >>> models()["demo-en-de-student"].teacher
        'demo-en-de'
    """
    registry = tomllib.loads(read_resource(__package__, "models.toml"))
    recipes = registry["recipes"]
    return {name: _model(name, recipes, entry) for name, entry in registry["models"].items()}


def _model(name: str, recipes: Mapping[str, Any], entry: Mapping[str, Any]) -> ZooModel:
    scores, file = entry.get("scores"), entry.get("file")
    return ZooModel(
        name,
        entry["about"],
        merge(recipes[entry["recipe"]], entry.get("settings", {})),
        entry.get("teacher", ""),
        entry.get("weights"),
        None if scores is None else ZooScores(**scores),
        None if file is None else PublishedFile(**file),
    )


def find(name: str) -> ZooModel:
    """Returns a model of the zoo.

    Args:
        name: Its name.

    Returns:
        The model.

    Raises:
        UserError: If there is none of that name; the message has the nearest.

    Example:
        >>> find("demo-en-de").licence
        'Apache-2.0'
    """
    if name not in models():
        raise unknown_name("model of the zoo", name, models())
    return models()[name]
