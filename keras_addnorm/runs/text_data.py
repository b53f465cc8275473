"""The texts of a run: its sentence pairs and its tokenizers."""

from __future__ import annotations

import dataclasses
import filecmp
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_addnorm.basics import atomic_file
from keras_addnorm.basics.errors import ArgumentError, UserError
from keras_addnorm.basics.integrity import digest_of_files
from keras_addnorm.basics.languages import code_of
from keras_addnorm.data import LineReport, TokenizerPair, hold_out, tokenizer_pair
from keras_addnorm.data.file_names import VALIDATION_NAMES
from keras_addnorm.data.loading import open_translation
from keras_addnorm.data.open_files import STANDARD_INPUT, save_standard_input
from keras_addnorm.data.readers import has_data_ending
from keras_addnorm.data.request import Request
from keras_addnorm.data.splits import MissingSplitError, intervals, names_in, without
from keras_addnorm.data.strings import string_pairs
from keras_addnorm.data.translation_set import TranslationSet
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.settings import RunConfig

_VALIDATION = "validation"


@dataclass(frozen=True)
class RunPairs:
    """The pairs of a training.

    Attributes:
        training: What is trained on: pairs `(source_text, target_text)`.
        validation: What is validated on; no pair of it is in `training` by its place.
        others: The pairs of the splits that nothing should be trained on, such as test sets.
        notes: What the user should know about how they were found.
        line_reports: Counts the unusable lines of the splits that are trained on, as wholes; it
            reads them only if they have not been read.
        fingerprint: Computes a digest of all that the pairs come from, without parsing the files.
    """

    training: Iterable[Any]
    validation: Iterable[Any]
    others: Iterable[Any] = ()
    notes: tuple[str, ...] = ()
    line_reports: Callable[[], dict[str, LineReport]] = dict
    fingerprint: Callable[[], str] = str


def run_pairs(config: RunConfig) -> RunPairs:
    """Loads the pairs to train and to validate on.

    The validation pairs are those of the setting `validation`, else the split of that name, else
    some of the training pairs, which are held out: the same ones each time.

    Args:
        config: The run's configuration; its `split` is what is trained on, but for the validation
            pairs in it.

    Returns:
        Both, and the pairs of the other splits.

    Raises:
        UserError: If the data or a split does not exist, or nothing is left to train on.
    """
    with as_user_errors():
        corpus = _open(config)
        split = corpus.resolve_split(config.split)
        training, validation, notes = _divided(config, corpus, split)
        others = _not_for_training(corpus, split)
        trained = corpus.named_in(split)
        return RunPairs(
            training,
            validation,
            others,
            (*corpus.notes, *notes),
            lambda: corpus.line_reports(trained),
            lambda: " ".join(one.fingerprint() for one in _sets(config, corpus)),
        )


def _sets(config: RunConfig, corpus: TranslationSet) -> Iterator[TranslationSet]:
    """The data, and the file to validate on if it is another one."""
    yield corpus
    if _is_file(config.validation):
        yield _open(config, data=config.validation)


def _not_for_training(corpus: TranslationSet, split: str) -> Any:
    """The pairs of validation and test sets: of all splits but `train`, `train_small` and such."""
    used = names_in(split)
    rest = [name for name in corpus.splits if name not in used and not name.startswith("train")]
    return corpus.read("+".join(rest)) if rest else ()


def _divided(
    config: RunConfig, corpus: TranslationSet, split: str
) -> tuple[Any, Any, tuple[str, ...]]:
    """The pairs to train on and to validate on, and what is to be said of them."""
    wanted = config.validation or (_VALIDATION if _has_validation(corpus) else "")
    if not wanted:
        return _held_out(config, corpus, split)
    if _is_file(wanted):
        return corpus.read(split), _read_file(config, wanted), ()
    wanted = corpus.resolve_split(wanted)
    if not {*names_in(wanted)} & {*names_in(split)}:
        # Every line of it, so that its scores are those of the whole set.
        return corpus.read(split), _open(config, keep_every_pair=True).read(wanted), ()
    rest = without(split, wanted, corpus.sizes)
    if not rest:
        raise UserError(
            f"Nothing is left to train on: the validation pairs are {wanted!r}, the training pairs "
            f"{split!r}. Expected a smaller part, such as 'train[:1%]'."
        )
    return corpus.read(rest), corpus.read(wanted), ()


def _is_file(split: str) -> bool:
    """Whether a file of pairs is named in place of a split."""
    return has_data_ending(split) and Path(split).is_file()


def _read_file(config: RunConfig, path: str, keep_every_pair: bool = True) -> Any:
    """The pairs of another file than the run's data."""
    return _open(config, keep_every_pair, data=path).read("train")


def _has_validation(corpus: TranslationSet) -> bool:
    try:
        corpus.resolve_split(_VALIDATION)
    except ValueError:
        return False
    return True


def _held_out(
    config: RunConfig, corpus: TranslationSet, split: str
) -> tuple[Any, Any, tuple[str, ...]]:
    training, validation = hold_out(corpus.read(split))
    validation = list(string_pairs(validation))  # They are few, and read more than once.
    held, left = len(validation), len(training)
    note = (
        f"There is no validation set in {config.data!r}: {held:,} of {held + left:,} training "
        "pairs are held out for it, the same ones each time. Choose others with --validation."
    )
    return training, validation, (note,)


def load_pairs(
    config: RunConfig, split: str, *, keep_every_pair: bool = False
) -> Iterator[tuple[str, str]]:
    """Reads the sentence pairs of a split."""
    with as_user_errors():
        yield from string_pairs(_pairs(config, split, keep_every_pair))


def _pairs(config: RunConfig, split: str, keep_every_pair: bool) -> Iterable[Any]:
    if _is_file(split):
        return _read_file(config, split, keep_every_pair)
    if VALIDATION_NAMES.issuperset(names_in(split)) and not _has_validation(_open(config)):
        return _part_of_validation(config, split)
    try:
        return _open(config, keep_every_pair).read(split)
    except MissingSplitError as error:
        if error.name != "test":
            raise
        raise ArgumentError(
            "There is no test set:",
            remedy="Say `split=validation` for the pairs that the training was validated on, or "
            "`split=test.tsv` for those of a file.",
            because=error,
        ) from error


def _part_of_validation(config: RunConfig, split: str) -> Any:
    """Some of the pairs that a run validates on, which the data have no name for."""
    pairs = list(string_pairs(run_pairs(config).validation))
    expression = "+".join(
        _VALIDATION + "".join(part.strip().partition("[")[1:]) for part in split.split("+")
    )
    parts = intervals(expression, {_VALIDATION: len(pairs)})
    return [pair for _, start, end in parts for pair in pairs[start:end]]


def test_splits(config: RunConfig) -> tuple[str, ...]:
    """Names the splits of the data that are neither trained nor validated on, such as `test`."""
    with as_user_errors():
        names = _open(config).splits
    return tuple(
        name for name in names if not name.startswith("train") and name not in VALIDATION_NAMES
    )


def load_texts(
    config: RunConfig, split: str, *, keep_every_pair: bool = False
) -> tuple[list[str], list[str]]:
    """Loads the sources of a split and a reference for each; see `load_pairs`."""
    pairs = list(load_pairs(config, split, keep_every_pair=keep_every_pair))
    if not pairs:
        raise UserError(f"The split {split!r} of {config.data!r} has no sentence pair.")
    sources, references = zip(*pairs, strict=True)
    return list(sources), list(references)


def keep_standard_input(config: RunConfig, directory: RunDirectory) -> RunConfig:
    """Writes the standard input, if it is the data, to the run directory, for later commands.

    Returns the configuration with the file in its place.
    """
    if config.data != STANDARD_INPUT:
        return config
    path = directory.standard_input
    is_trained = directory.model.exists() or directory.has_tokenizers()
    rewriting = directory.manifest.rewriting(path)
    with as_user_errors(), rewriting, atomic_file(path) as temporary:
        save_standard_input(temporary)
        if is_trained and not (path.exists() and filecmp.cmp(temporary, path, shallow=False)):
            raise UserError(
                f"{str(directory.path)!r} holds a run that was trained on other data than this "
                "standard input. Choose another run directory."
            )
    return config.replace({"data": str(path)})


def _open(
    config: RunConfig, keep_every_pair: bool = False, data: str | None = None
) -> TranslationSet:
    return open_translation(
        Request(
            config.data if data is None else data,
            # Runs of earlier versions may have the name of a language in place of its code.
            source=code_of(config.source),
            target=code_of(config.target),
            reader=reader_choice(config),
            keep_every_pair=keep_every_pair,
        )
    )


def reader_choice(config: RunConfig) -> dict[str, str] | None:
    """Returns the settings of files as `load_translation` takes them; None if the files tell."""
    fields = {
        "name": "" if config.data_format == "auto" else config.data_format,
        "source_column": config.source_column,
        "target_column": config.target_column,
    }
    return {name: value for name, value in fields.items() if value} or None


def load_or_train_tokenizers(
    config: RunConfig,
    directory: RunDirectory,
    pairs: Any,
    say: Callable[[str], None] = lambda line: None,
    digest: str | None = None,
) -> TokenizerPair:
    """Returns the run's tokenizers; the first call trains them on the training pairs.

    They are trained again where a killed process has left none, or one of two; where they are lost,
    only if that gives those that the checkpoints belong to. A run that starts from another one
    takes that run's tokenizers. A vocabulary that is larger than the texts allow
    becomes the largest that they do, except in a strict training.

    Args:
        config: The run's configuration.
        directory: Where they are kept.
        pairs: The training pairs.
        say: Takes lines for the user.
        digest: Of the tokenizers that the run's checkpoints belong to; empty if an earlier version
            wrote them, which did not say; `None` without checkpoints.

    Returns:
        The tokenisers.

    Raises:
        UserError: If the texts do not allow such a vocabulary, the files are damaged, or the
            checkpoints belong to other tokenizers.
    """
    if directory.has_tokenizers():
        directory.check(directory.tokenizer)
        if directory.verify and digest and digest != digest_of_tokenizers(directory.tokenizer):
            raise UserError(
                f"The tokenizers in {str(directory.tokenizer)!r} are not those that the "
                "checkpoints of this run belong to: with others their weights mean nothing. "
                "Expected the files that were there when they were written. Copy these again from "
                "where they are whole, or choose another run directory."
            )
        with as_user_errors():
            return TokenizerPair.load(directory.tokenizer)
    with as_user_errors():
        if config.training.start_from:
            start = RunDirectory(config.training.start_from, verify=directory.verify)
            start.check(start.tokenizer)
            tokenizers = TokenizerPair.load(start.tokenizer)
        else:
            tokenizers = _train_tokenizers(config, pairs, say)
    if digest is not None:
        _require_the_lost_ones(tokenizers, digest, directory)
    save_tokenizers(tokenizers, directory)
    return tokenizers


def save_tokenizers(tokenizers: TokenizerPair, directory: RunDirectory) -> None:
    """Writes the tokenizers of a run, and the digests of their files."""
    with directory.manifest.rewriting(directory.tokenizer):
        tokenizers.save(directory.tokenizer)


def digest_of_tokenizers(folder: Path) -> str:
    """Computes a digest of the files of tokenizers, by which a checkpoint knows them."""
    return digest_of_files(folder, tokenizer_pair.FILES)


def _require_the_lost_ones(tokenizers: TokenizerPair, digest: str, directory: RunDirectory) -> None:
    """Refuses tokenizers that were made in the place of lost ones of another digest."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizers.save(folder)
        is_equal = digest_of_tokenizers(Path(folder)) == digest
    if is_equal or (not digest and not directory.verify):
        return
    what = "others come out, with which the weights of its checkpoints mean nothing"
    hint = ""
    if not digest:
        what = "its checkpoints, of an earlier version, do not say whether they are the same"
        hint = " If texts and settings are as they were: --no-verify."
    raise UserError(
        f"The tokenizers of the run {str(directory.path)!r} are lost, and trained again on the "
        f"present texts {what}. Expected {str(directory.tokenizer)!r} as it was. Copy it again "
        f"from where it is whole, or choose another run directory for a new training.{hint}"
    )


def _train_tokenizers(config: RunConfig, pairs: Any, say: Callable[[str], None]) -> TokenizerPair:
    wanted, most, count = config.tokenizer.vocabulary_size, config.tokenizer.sample_pairs, 0

    def counted() -> Iterator[tuple[str, str]]:
        nonlocal count
        for pair in string_pairs(pairs):
            count += 1
            yield pair

    tokenizers = TokenizerPair.train(
        counted(), **dataclasses.asdict(config.tokenizer), allow_smaller=not config.training.strict
    )
    if count > most:
        say(
            f"Tokenizer: trained on a sample of {most:,} of the {count:,} training pairs "
            "(--tokenizer-sample-pairs)."
        )
    sizes = {"source": tokenizers.source, "target": tokenizers.target}
    for side, tokenizer in (
        {"": tokenizers.source}.items() if tokenizers.is_joint else sizes.items()
    ):
        if tokenizer.vocabulary_size < wanted:
            whose = f" {side}" if side else ""
            say(
                f"The{whose} vocabulary has {tokenizer.vocabulary_size:,} pieces, not {wanted:,}: "
                "there are no more in the training text."
            )
    return tokenizers
