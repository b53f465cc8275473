"""Is a difference of BLEU or chrF real? sacreBLEU's paired tests of several translations."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from keras_addnorm.basics.argument_checks import require_bool
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.training.bleu_tokenizers import AUTO, bleu_tokenizer
from keras_addnorm.training.scores import checked_texts, reference_sets

if TYPE_CHECKING:
    from sacrebleu.significance import Result

LEVEL = 0.05
"""The p-value below which a difference is called significant."""


@dataclass(frozen=True)
class TestedScore:
    """A score of one system beside the baseline's.

    Attributes:
        score: The corpus score, 0 to 100.
        mean: Its mean over the bootstrap's samples of the sentences.
        interval: Half the width of the 95 % confidence interval around that mean.
        bootstrap_p: p-value of the paired bootstrap; `None` of the baseline.
        randomization_p: p-value of the approximate randomisation; `None` of the baseline.
    """

    score: float
    mean: float
    interval: float
    bootstrap_p: float | None
    randomization_p: float | None

    @property
    def is_significant(self) -> bool:
        """Whether both tests say that the difference from the baseline is not by chance."""
        found = (self.bootstrap_p, self.randomization_p)
        return all(p is not None and p < LEVEL for p in found)


@dataclass(frozen=True)
class Comparison:
    """Several translations of the same sentences, each tested against the first.

    Attributes:
        systems: Their names, the baseline first.
        bleu: BLEU of each.
        chrf: chrF2 of each.
        bleu_signatures: sacreBLEU's signatures of BLEU's two tests, the bootstrap first.
        chrf_signatures: Those of chrF.
    """

    systems: tuple[str, ...]
    bleu: tuple[TestedScore, ...]
    chrf: tuple[TestedScore, ...]
    bleu_signatures: tuple[str, str]
    chrf_signatures: tuple[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures as plain JSON values: a table by the name of the system."""
        rows = zip(self.systems, self.bleu, self.chrf, strict=True)
        return {
            "baseline": self.systems[0],
            "systems": {
                name: {"bleu": asdict(bleu), "chrf": asdict(chrf)} for name, bleu, chrf in rows
            },
            "bleu_signatures": list(self.bleu_signatures),
            "chrf_signatures": list(self.chrf_signatures),
        }


def compare_translations(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str] | Sequence[Sequence[str]],
    lowercase: bool = False,
    *,
    language: str | None = None,
    tokenizer: str = AUTO,
) -> Comparison:
    """Tests whether differences of BLEU and chrF could be chance of the sentences.

    Each system is compared with the first, the baseline, by sacreBLEU's two paired tests, with
    their usual numbers of samples. The *paired bootstrap* draws as many sentences as there are,
    with replacement, 1,000 times, the same ones for both systems. *Approximate randomisation*
    exchanges the two translations of each sentence with probability ½, 10,000 times. With the
    count c of the N samples whose difference is larger than the observed one (in the bootstrap:
    whose difference minus the mean difference is), p = (c + 1) / (N + 1). Equal scores have p = 1,
    though sacreBLEU prints its smallest p-value for equal translations.

    The seed is sacreBLEU's own: 12345, or that of the environment variable `SACREBLEU_SEED`.

    The tests know of no other training: a second seed of the same model may differ by more than a
    difference that is significant here. Many systems are tested one by one; of twenty equal ones
    one is expected below 0.05.

    Args:
        systems: The translations of each system by its name, the baseline first.
        references: As for `evaluate_translations`.
        lowercase: Whether case is ignored.
        language: As for `evaluate_translations`.
        tokenizer: As for `evaluate_translations`.

    Returns:
        Scores, intervals and p-values.

    Raises:
        ValueError: If there are fewer than two systems, a translation or a reference is missing,
            or the tokeniser is unknown.
        TypeError: If a translation or reference is not a string.
        ImportError: If the tokeniser needs a package that is not installed.

    Example:
        >>> from keras_addnorm.training import compare_translations
        >>> right = [f"the dog has {number} balls" for number in range(40)]
        >>> worse = [text.replace("dog", "cat") for text in right[:30]] + right[30:]
        >>> found = compare_translations({"right": right, "worse": worse}, right)
        >>> [round(each.score) for each in found.bleu], found.bleu[1].is_significant
        ([100, 51], True)

    Reference:
        Koehn, Statistical Significance Tests for Machine Translation Evaluation (2004); Riezler and
        Maxwell, On Some Pitfalls in Automatic Evaluation and Significance Testing for MT (2005).
    """
    # Imported here, as in `evaluate_translations`.
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.significance import PairedTest

    require_bool(lowercase=lowercase)
    if not isinstance(systems, Mapping):
        raise ArgumentTypeError(
            "systems holds the translations of each system by its name.", "a dict", value=systems
        )
    if len(systems) < 2:
        raise ArgumentError(
            "A paired test compares two systems or more.",
            remedy="Give the translations of another one, too.",
            received=f"{len(systems)}",
        )
    sets = reference_sets(references)
    named: list[tuple[str, Sequence[str]]] = [
        (name, checked_texts(texts, name)) for name, texts in systems.items()
    ]
    for name, texts in named:
        if wrong := next((each for each in sets if len(each) != len(texts)), None):
            raise ArgumentError(
                "Each system has one translation for each reference.",
                remedy="Translate the same file with all systems.",
                received=f"{len(texts)} translations by {name!r} and {len(wrong)} references",
            )
    tokenize = bleu_tokenizer(language, tokenizer, references=list(itertools.chain(*sets)))

    def tested(kind: str) -> tuple[list[list[Any]], list[str]]:
        metrics = {
            "BLEU": BLEU(lowercase=lowercase, tokenize=tokenize),
            "chrF2": CHRF(lowercase=lowercase),
        }
        signatures, scores = PairedTest(named, metrics, sets, test_type=kind)()
        return [scores[name] for name in metrics], [str(signatures[name]) for name in metrics]

    bootstrap, bootstrap_signatures = tested("bs")
    randomization, randomization_signatures = tested("ar")
    bleu, chrf = (
        tuple(
            TestedScore(
                score=float(by_bootstrap.score),
                mean=float(by_bootstrap.mean),
                interval=float(by_bootstrap.ci),
                bootstrap_p=_p_value(by_bootstrap, each[0][0]),
                randomization_p=_p_value(by_randomization, each[1][0]),
            )
            for by_bootstrap, by_randomization in zip(*each, strict=True)
        )
        for each in zip(bootstrap, randomization, strict=True)
    )
    bleu_signatures, chrf_signatures = zip(
        bootstrap_signatures, randomization_signatures, strict=True
    )
    return Comparison(tuple(systems), bleu, chrf, bleu_signatures, chrf_signatures)


def _p_value(result: Result, baseline: Result) -> float | None:
    """The p-value; equal scores have 1, as no sample's difference is below theirs."""
    if result.p_value is not None and result.score == baseline.score:
        return 1.0
    return result.p_value
