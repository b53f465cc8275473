"""Scores of a trained run: BLEU and chrF as sacreBLEU computes them, with their signatures."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from keras_addnorm.basics.errors import UserError
from keras_addnorm.data.readers import InputFile
from keras_addnorm.data.readers.input_file import LONGEST_TEXT
from keras_addnorm.runs.directory import RunDirectory, write_text
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.portions import WHOLE, Share
from keras_addnorm.runs.settings import SEARCH_SETTINGS, RunConfig
from keras_addnorm.runs.text_data import load_texts
from keras_addnorm.runs.trained_run import TrainedRun
from keras_addnorm.runs.translate import translate_texts
from keras_addnorm.runs.translation_portions import RunTranslator, in_portions
from keras_addnorm.training import Scores, bleu_tokenizer, evaluate_translations
from keras_addnorm.training.scores import LONGEST_REFERENCE, too_long


@dataclass(frozen=True)
class Evaluation:
    """The translations of a split and their scores.

    Attributes:
        split: The split's name.
        sources: The source sentences.
        references: The reference translations.
        translations: The model's translations.
        cased: BLEU and chrF with their signatures.
        lowercase: The same, with case ignored.
        exact_match: Percentage of translations equal to their reference.
        more_references: Further lists of references, each with one for every translation.
        empty: How many of the pairs have an empty side; they are counted in the scores, too.
        seconds: Time that the translation took, compilation included, and in portions loading, too;
            `None` if it was divided.
    """

    split: str
    sources: Sequence[str]
    references: Sequence[str]
    translations: Sequence[str]
    cased: Scores
    lowercase: Scores
    exact_match: float
    seconds: float | None
    empty: int = 0
    more_references: Sequence[Sequence[str]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures, without the sentences."""
        return {
            "cased": asdict(self.cased),
            "lowercase": asdict(self.lowercase),
            "exact_match": self.exact_match,
            "sentences": len(self.translations),
            "empty": self.empty,
            "seconds": None if self.seconds is None else round(self.seconds, 2),
        }


def exact_match(translations: Sequence[str], *references: Sequence[str]) -> float:
    """Counts the translations that equal their reference, or one of them.

    Args:
        translations: The translations.
        *references: One reference for each; several such lists where there are more.

    Returns:
        Their share, in percent.

    Example:
        >>> exact_match(["a", "b", "c", "d"], ["a", "b", "c", "e"])
        75.0
    """
    rows = zip(translations, *references, strict=True)
    return 100.0 * sum(text in known for text, *known in rows) / len(translations)


def evaluate(
    run: TrainedRun, split: str = "test", *, references: Sequence[str] = (), verbose: int = 0
) -> Evaluation:
    """Translates every pair of a split and scores the translations.

    A source without text has an empty translation, and a line that is too long to be trained on is
    translated all the same: there are as many translations as the files have lines. The figures are
    added to `scores.json` under the split's name, and the translations are written to
    `translations.txt`, one a line.

    Args:
        run: A trained run.
        split: The split, such as `test`, `test_2016_flickr` or `validation[:100]`, or a file of
            sentence pairs.
        references: Where further references are: a text file with a line for each pair, or another
            column of the split's file.
        verbose: 1 for a progress bar, 0 for none.

    Returns:
        Translations and scores.

    Raises:
        UserError: If the split does not exist or is empty, or there is no reference for each pair.
    """
    texts = Texts.read(run.directory, run.config, split, references)
    started = time.perf_counter()
    translations = [text for text, _ in translate_texts(run, texts.sources, verbose=verbose)]
    found = texts.scored(translations, run.config, time.perf_counter() - started)
    _write(run.directory, run.config, found)
    return found


def evaluate_in_portions(
    directory: RunDirectory,
    config: RunConfig,
    split: str = "test",
    *,
    references: Sequence[str] = (),
    processes: int = 1,
    shard: Share = WHOLE,
    say: Callable[[str], None],
) -> Evaluation | None:
    """Does what `evaluate` does, and goes on where an earlier call was killed.

    Args:
        directory: The run's directory, in whose `evaluation/` the translations are until all are
            there.
        config: Its configuration, with the search that is asked for.
        split: As for `evaluate`.
        references: As for `evaluate`.
        processes: The number of processes that translate.
        shard: The part of the pairs that this call translates.
        say: Takes lines for the user, such as how far it is.

    Returns:
        Translations and scores; `None` while the pairs of other shards are missing.

    Raises:
        UserError: As `evaluate` does.
    """
    with evaluated(
        directory, config, split, references=references, processes=processes, shard=shard, say=say
    ) as found:
        return found


@contextlib.contextmanager
def evaluated(
    directory: RunDirectory,
    config: RunConfig,
    split: str,
    *,
    references: Sequence[str],
    processes: int,
    shard: Share = WHOLE,
    say: Callable[[str], None],
) -> Iterator[Evaluation | None]:
    """Evaluates in portions, which stay until the end of the block."""
    directory.weights()  # Before the texts are read.
    directory.require_own_folders()
    texts = Texts.read(directory, config, split, references)
    started = time.perf_counter()
    before: list[int] = []
    try:
        with in_portions(
            directory.evaluation / (re.sub(r"\W+", "_", split)[:60] or "_"),
            texts.sources,
            RunTranslator(directory, config),
            processes=processes,
            shard=shard,
            say=say,
            going_on=before.append,
        ) as portions:
            if portions is None:
                yield None
                return
            with as_user_errors():
                translations = [best[0] for best, *_ in portions]
            # Of what others, or an earlier call, have translated the time is not known.
            is_alone = shard == WHOLE and not before
            seconds = time.perf_counter() - started if is_alone else None
            found = texts.scored(translations, config, seconds)
            _write(directory, config, found)
            yield found
    finally:
        with contextlib.suppress(OSError):  # Another split may be in it.
            directory.evaluation.rmdir()


@dataclass(frozen=True)
class Texts:
    """A split with its references."""

    split: str
    sources: list[str]
    references: list[list[str]]

    @classmethod
    def read(
        cls, directory: RunDirectory, config: RunConfig, split: str, references: Sequence[str]
    ) -> Texts:
        """Reads the split, and further references."""
        directory.read_scores()  # Others are added to them: they are whole, or it is said now.
        sources, first = load_texts(config, split, keep_every_pair=True)
        more = [_further_references(config, split, name, first) for name in references]
        for name, texts in zip([split, *references], [first, *more], strict=True):
            _require_sentences(name, texts)
        require_tokenizer(config)
        return cls(split, sources, [first, *more])

    def scored(
        self, translations: list[str], config: RunConfig, seconds: float | None
    ) -> Evaluation:
        """Scores the translations of the sources."""
        score = functools.partial(
            evaluate_translations,
            language=config.target,
            tokenizer=config.evaluation.bleu_tokenizer,
        )
        first, *more = self.references
        return Evaluation(
            split=self.split,
            sources=self.sources,
            references=first,
            translations=translations,
            cased=score(translations, self.references),
            lowercase=score(translations, self.references, lowercase=True),
            exact_match=exact_match(translations, first, *more),
            seconds=seconds,
            empty=sum(not all(pair) for pair in zip(self.sources, first, strict=True)),
            more_references=more,
        )


def require_tokenizer(config: RunConfig) -> None:
    """Raises a `UserError` unless BLEU's tokeniser is there: scores come after long work."""
    with as_user_errors():
        bleu_tokenizer(config.target, config.evaluation.bleu_tokenizer)


def _further_references(
    config: RunConfig, split: str, name: str, first: Sequence[str]
) -> list[str]:
    """Return the references of a file, or of another column."""
    path = Path(name)
    if path.is_file():
        with as_user_errors():
            rows = enumerate(InputFile(path).lines(), start=1)
            lines = [_reference(name, number, line) for number, line in rows]
    elif os.path.lexists(path):
        raise UserError(
            f"{name!r} is no file. Expected a text file with a reference for each pair, or another "
            "column of a file of pairs."
        )
    else:
        column = config.replace({"target_column": name})
        lines = load_texts(column, split, keep_every_pair=True)[1]
    if len(lines) != len(first):
        raise UserError(
            f"{name!r} has {len(lines):,} references for the {len(first):,} pairs of {split!r}. "
            "Expected one for each, in their order."
        )
    if lines == list(first):
        nothing = "" if path.is_file() else f"There is no file {name!r}, and as a column "
        raise UserError(
            f"{nothing or repr(name)} has the references that {split!r} has already. Expected "
            "others: a text file with a line for each pair, or another column of a file of pairs."
        )
    return lines


def _require_sentences(name: str, references: Sequence[str]) -> None:
    if (place := too_long(references)) is not None:
        raise UserError(
            f"Reference {place + 1:,} of {name!r} has {len(references[place]):,} characters. "
            f"Expected sentences, of at most {LONGEST_REFERENCE:,}; longer ones cannot be scored."
        )


def _reference(name: str, number: int, line: bytes) -> str:
    """Return a line of a file of references."""
    if len(line) > LONGEST_TEXT:
        raise UserError(
            f"Line {number:,} of {name!r} has more than {LONGEST_TEXT:,} bytes. Expected one "
            "reference a line."
        )
    try:
        return line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise UserError(
            f"Line {number:,} of {name!r} is no text in UTF-8: it has the byte "
            f"{line[error.start]:#04x}, {error.reason}. Convert the file with iconv."
        ) from error


def _write(directory: RunDirectory, config: RunConfig, found: Evaluation) -> None:
    scores = {
        **found.to_dict(),
        "weights": directory.weights().name,
        **{name: getattr(config.evaluation, name) for name in SEARCH_SETTINGS},
    }
    directory.add_scores(found.split, scores)
    # One a line, also where a source has line breaks, which its translation keeps.
    lines = (" ".join(text.splitlines()) for text in found.translations)
    write_text(directory.translations, "".join(f"{line}\n" for line in lines))


def summary(found: Evaluation) -> str:
    """Lays out the figures, one a line."""
    cased, lowercase = found.cased, found.lowercase
    empty = f", {found.empty:,} of them with an empty side" if found.empty else ""
    return "\n".join(
        (
            f"BLEU  {cased.bleu:6.2f}   {cased.bleu_signature}",
            f"BLEU  {lowercase.bleu:6.2f}   {lowercase.bleu_signature}",
            f"chrF  {cased.chrf:6.2f}   {cased.chrf_signature}",
            f"exact match: {found.exact_match:.1f} %",
            f"over all {len(found.translations):,} pairs of {found.split!r}{empty}",
        )
    )


def table(found: Evaluation, rows: int) -> str:
    """Lays out `rows` translations, spread evenly, beside source and reference."""
    count = min(rows, len(found.sources))
    chosen = [index * len(found.sources) // count for index in range(count)]
    return "\n\n".join(
        f"  source       {found.sources[index]}\n"
        f"  reference    {found.references[index]}\n"
        f"  translation  {found.translations[index]}"
        for index in chosen
    )
