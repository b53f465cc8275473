"""Several runs on one split, and which of their differences are more than chance."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from keras_addnorm.basics.errors import UserError
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.evaluate import Evaluation, Texts, evaluated
from keras_addnorm.runs.settings import RunConfig
from keras_addnorm.training import Comparison, TestedScore, compare_translations


def compare_in_portions(
    runs: Sequence[tuple[RunDirectory, RunConfig]],
    split: str = "test",
    *,
    references: Sequence[str] = (),
    processes: int = 1,
    say: Callable[[str], None],
) -> tuple[list[Evaluation], Comparison]:
    """Evaluates several runs on a split, and tests each against the first.

    Each is evaluated as by `evaluate_in_portions`, and what it has translated stays until all have:
    a call that was killed goes on. The comparison is added to the first run's scores of the split,
    as `compared`.

    Args:
        runs: The directory of each run and its configuration, the baseline first.
        split: As for `evaluate`.
        references: As for `evaluate`, for each of the runs.
        processes: The number of processes that translate.
        say: Takes lines for the user.

    Returns:
        What was found of each run, and the comparison, in which a run has its path's name.

    Raises:
        UserError: As `evaluate` does; if a run is named twice, or the runs translate into different
            languages, have different references or split words for BLEU in different ways.
    """
    directory, config = runs[0]
    named = _distinct(runs)
    for name, (_, other) in list(named.items())[1:]:
        _require_same_measure(str(directory.path), config, name, other)
    texts = Texts.read(directory, config, split, references)
    for name, (place, other) in list(named.items())[1:]:
        place.weights()
        place.require_own_folders()
        _require_same_references(
            texts, str(directory.path), Texts.read(place, other, split, references), name
        )
    with contextlib.ExitStack() as kept:
        found: list[Evaluation] = []
        for name, (place, settings) in named.items():
            say(f"{name}:")
            one = kept.enter_context(
                evaluated(
                    place, settings, split, references=references, processes=processes, say=say
                )
            )
            if one is None:  # Another command has made the output meanwhile.
                raise UserError(
                    f"Of {name!r} the translations are missing: another command took them away "
                    "while this one ran. Give the same command again."
                )
            found.append(one)
        comparison = compare_translations(
            {name: one.translations for name, one in zip(named, found, strict=True)},
            texts.references,
            language=config.target,
            tokenizer=config.evaluation.bleu_tokenizer,
        )
        known = directory.read_scores()[split]
        directory.add_scores(split, {**known, "compared": comparison.to_dict()})
    return found, comparison


def _distinct(
    runs: Sequence[tuple[RunDirectory, RunConfig]],
) -> dict[str, tuple[RunDirectory, RunConfig]]:
    """The runs by their paths, as they were given; none is there twice."""
    named: dict[str, tuple[RunDirectory, RunConfig]] = {}
    seen: set[Path] = set()
    for directory, config in runs:
        if (place := directory.path.resolve()) in seen:
            raise UserError(
                f"The run {str(directory.path)!r} would be compared with itself. Expected other "
                "runs. To compare two searches or checkpoints of a run, copy it."
            )
        seen.add(place)
        named[str(directory.path)] = directory, config
    return named


def _require_same_measure(baseline: str, config: RunConfig, name: str, other: RunConfig) -> None:
    """Refuses runs whose translations are in two languages, or split into words in two ways."""
    for what, key, one, two in (
        ("translates into", "target", config.target, other.target),
        (
            "has the BLEU tokeniser",
            "evaluation.bleu_tokenizer",
            config.evaluation.bleu_tokenizer,
            other.evaluation.bleu_tokenizer,
        ),
    ):
        if one != two:
            raise UserError(
                f"The runs cannot be compared: {baseline!r} {what} {one!r}, {name!r} {two!r}. "
                f"Expected the same setting `{key}` in all of them."
            )


def _require_same_references(texts: Texts, baseline: str, other: Texts, name: str) -> None:
    """Refuses runs that would be scored against different references."""
    if other.references == texts.references:
        return
    one, two = len(texts.sources), len(other.sources)
    if one != two:
        how = f"{baseline!r} has {one:,}, {name!r} has {two:,}"
    else:
        sides = (zip(*each.references, strict=True) for each in (texts, other))
        rows = enumerate(zip(*sides, strict=True), start=1)
        place = next(row for row, (first, second) in rows if first != second)
        how = f"that of pair {place:,} is the first that differs"
    raise UserError(
        f"The runs have different references for the split {texts.split!r}: {how}. Expected the "
        "same in all of them. Name a file of pairs that all can read as the split: --split FILE."
    )


def comparison_table(found: Comparison) -> str:
    """Lays out scores, intervals and p-values, a line a run, and says what they mean."""
    width = max(3, *map(len, found.systems))
    head = "score   95 % interval  bootstrap p  randomisation p"
    lines = [
        f"{'':{width}}  {'BLEU':{len(head)}}     chrF",
        f"{'run':{width}}  {head}     {head}",
    ]
    for name, bleu, chrf in zip(found.systems, found.bleu, found.chrf, strict=True):
        lines.append(f"{name:{width}}  {_cells(bleu)}   {_cells(chrf)}".rstrip())
    return "\n".join(
        (
            *lines,
            "* both p-values below 0.05: against the first run, the difference is more than chance "
            "of the sentences. Another seed of the training may differ by more.",
            *(f"BLEU  {signature}" for signature in found.bleu_signatures),
            *(f"chrF  {signature}" for signature in found.chrf_signatures),
        )
    )


def _cells(one: TestedScore) -> str:
    """The four numbers of a score, and a star where the difference is significant."""
    star = "*" if one.is_significant else " "
    first = f"{one.score:6.2f} {one.mean:8.2f} ± {one.interval:<5.2f}"
    if one.bootstrap_p is None or one.randomization_p is None:
        return f"{first}{'':31}  "
    return f"{first}{one.bootstrap_p:11.4f}{one.randomization_p:17.4f}   {star} "
