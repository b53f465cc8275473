"""Scores of a trained run: BLEU and chrF as sacreBLEU computes them, with their signatures."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from keras_addnorm.basics.errors import UserError
from keras_addnorm.data.readers import InputFile
from keras_addnorm.runs.directory import write_text
from keras_addnorm.runs.errors import as_user_errors
from keras_addnorm.runs.settings import SEARCH_SETTINGS
from keras_addnorm.runs.text_data import load_texts
from keras_addnorm.runs.trained_run import TrainedRun
from keras_addnorm.runs.translate import translate_texts
from keras_addnorm.training import Scores, evaluate_translations


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
        seconds: Time that the translation took, compilation included.
    """

    split: str
    sources: Sequence[str]
    references: Sequence[str]
    translations: Sequence[str]
    cased: Scores
    lowercase: Scores
    exact_match: float
    seconds: float
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
            "seconds": round(self.seconds, 2),
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
    run.directory.read_scores()  # Others are added to them: they are whole, or it is said now.
    sources, first = load_texts(run.config, split, keep_every_pair=True)
    more = [_further_references(run, split, name, first) for name in references]
    score = functools.partial(
        evaluate_translations,
        language=run.config.target,
        tokenizer=run.config.evaluation.bleu_tokenizer,
    )
    started = time.perf_counter()
    translations = [text for text, _ in translate_texts(run, sources, verbose=verbose)]
    found = Evaluation(
        split=split,
        sources=sources,
        references=first,
        translations=translations,
        cased=score(translations, [first, *more]),
        lowercase=score(translations, [first, *more], lowercase=True),
        exact_match=exact_match(translations, first, *more),
        seconds=time.perf_counter() - started,
        empty=sum(not all(pair) for pair in zip(sources, first, strict=True)),
        more_references=more,
    )
    _write(run, found)
    return found


def _further_references(run: TrainedRun, split: str, name: str, first: Sequence[str]) -> list[str]:
    """Return the references of a file, or of another column."""
    path = Path(name)
    if path.is_file():
        with as_user_errors():
            lines = [line.decode("utf-8").strip() for line in InputFile(path).lines()]
    else:
        column = run.config.replace({"target_column": name})
        lines = load_texts(column, split, keep_every_pair=True)[1]
    if len(lines) != len(first):
        raise UserError(
            f"{name!r} has {len(lines):,} references for the {len(first):,} pairs of {split!r}. "
            "Expected one for each, in their order."
        )
    if lines == list(first):
        raise UserError(
            f"{name!r} has the references that {split!r} has already. Expected others: a text file "
            "with a line for each pair, or another column of a file of pairs."
        )
    return lines


def _write(run: TrainedRun, found: Evaluation) -> None:
    scores = {
        **found.to_dict(),
        "weights": run.directory.weights().name,
        **{name: getattr(run.config.evaluation, name) for name in SEARCH_SETTINGS},
    }
    run.directory.add_scores(found.split, scores)
    # One a line, also where a source has line breaks, which its translation keeps.
    lines = (" ".join(text.splitlines()) for text in found.translations)
    write_text(run.directory.translations, "".join(f"{line}\n" for line in lines))


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
