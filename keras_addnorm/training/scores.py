"""Corpus scores of translations, exactly as the sacreBLEU command prints them."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from keras_addnorm.basics.argument_checks import require_bool
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.training.bleu_tokenizers import AUTO, bleu_tokenizer

LONGEST_REFERENCE = 100_000  # Characters; for each, sacreBLEU takes half a kilobyte.


@dataclass(frozen=True)
class Scores:
    """BLEU and chrF of a corpus, each with the signature that makes it comparable.

    Attributes:
        bleu: Corpus BLEU, 0 to 100.
        chrf: Corpus chrF2, 0 to 100.
        bleu_signature: sacreBLEU's signature of the BLEU settings and version.
        chrf_signature: sacreBLEU's signature of the chrF settings and version.
    """

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def evaluate_translations(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    lowercase: bool = False,
    *,
    language: str | None = None,
    tokenizer: str = AUTO,
) -> Scores:
    """Scores translations against one reference or more, with sacreBLEU's default settings.

    Both sides are plain, detokenised text, compared as they are. For BLEU, sacreBLEU splits them
    into words itself: with 13a, or as the language or the script of the references asks for.
    Without that a language that is written without spaces has BLEU near 0. chrF counts characters
    and needs no words.

    Args:
        hypotheses: The translations.
        references: What they should have been, in the same order; or several such lists, each with
            a reference for every translation.
        lowercase: Whether case is ignored; the signatures say so.
        language: The language of the translations, such as `"de"` or `"zh-TW"`, which chooses
            sacreBLEU's tokeniser: see `bleu_tokenizer`.
        tokenizer: `"auto"`, or the name of sacreBLEU's tokeniser in place of the language's.

    Returns:
        Both corpus scores with their signatures, which name the tokeniser.

    Raises:
        ValueError: If the two differ in number, are empty, one of them is a single string, or the
            tokeniser is unknown.
        TypeError: If an element is not a string.
        ImportError: If the given tokeniser needs a package that is not installed.

    Example:
        >>> from keras_addnorm.training import evaluate_translations
        >>> scores = evaluate_translations(["The cat sat on the mat."], ["The cat sat on a mat."])
        >>> round(scores.bleu, 2)
        48.89
        >>> other = ["A cat sat on the mat."]
        >>> scores = evaluate_translations(["The cat sat on the mat."], [other, ["On a mat."]])
        >>> scores.bleu_signature.split("|")[0]
        'nrefs:2'
        >>> chinese = ["我今天去商店买菜。"]
        >>> scores = evaluate_translations(chinese, chinese, language="zh")
        >>> round(scores.bleu), scores.bleu_signature.split("|")[3]
        (100, 'tok:zh')

    Reference:
        Post, A Call for Clarity in Reporting BLEU Scores (2018).
    """
    # Imported here: training must not wait for it, and only scoring needs it.
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    require_bool(lowercase=lowercase)
    hypotheses = checked_texts(hypotheses, "hypotheses")
    sets = reference_sets(references)
    if wrong := next((each for each in sets if len(each) != len(hypotheses)), None):
        raise ArgumentError(
            "Each translation is scored against its own reference.",
            received=f"{len(hypotheses)} hypotheses and {len(wrong)} references",
        )
    tokenize = bleu_tokenizer(language, tokenizer, references=list(itertools.chain(*sets)))
    bleu, chrf = BLEU(lowercase=lowercase, tokenize=tokenize), CHRF(lowercase=lowercase)
    bleu_score = bleu.corpus_score(hypotheses, sets).score
    chrf_score = chrf.corpus_score(hypotheses, sets).score
    return Scores(
        bleu=bleu_score,
        chrf=chrf_score,
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


SENTENCE_METRICS = ("chrf", "bleu")
"""What `sentence_scorer` measures."""


def sentence_scorer(
    metric: str = "chrf", *, language: str | None = None
) -> Callable[[str, str], float]:
    """Makes a function from a translation and its reference to their nearness, 0 to 100.

    Args:
        metric: `"chrf"`, or `"bleu"`: BLEU up to 4-grams with 1 added to the counts of those that
            are missing, and of a sentence with fewer than four words up to what it has.
        language: The language of the translations, which chooses sacreBLEU's tokeniser.

    Returns:
        The function.

    Raises:
        ValueError: If there is no such metric, or the language is no text.

    Example:
        >>> from keras_addnorm.training import sentence_scorer
        >>> nearness = sentence_scorer("chrf")
        >>> nearness("The cat sat.", "The cat sat.")
        100.0
        >>> round(nearness("The cat sat.", "The cat sits."), 1)
        55.2
    """
    if metric not in SENTENCE_METRICS:
        raise ArgumentError(
            "There is no such metric of sentences.",
            f"one of {', '.join(SENTENCE_METRICS)}",
            value=metric,
        )
    tokenize = bleu_tokenizer(language)
    if metric == "chrf":
        from sacrebleu.metrics.chrf import CHRF

        chrf = CHRF()
        return lambda text, reference: chrf.sentence_score(text, [reference]).score
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(
        smooth_method="add-k",
        smooth_value=1.0,
        effective_order=True,
        tokenize=tokenize,
    )
    return lambda text, reference: bleu.sentence_score(text, [reference]).score


def reference_sets(references: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """One list of references, or several, each of as many texts."""
    if not isinstance(references, list | tuple) or not references:
        return [checked_references(references)]  # type: ignore[arg-type]
    if all(isinstance(each, list | tuple) for each in references):
        return [checked_references(each) for each in references]  # type: ignore[arg-type]
    return [checked_references(references)]  # type: ignore[arg-type]


def checked_references(references: Sequence[str]) -> list[str]:
    """The references as a list, or what is wrong with them: one may be too long to be scored."""
    texts = checked_texts(references, "references")
    if (index := too_long(texts)) is not None:
        raise ArgumentError(
            "A reference is too long to be scored.",
            f"sentences, of at most {LONGEST_REFERENCE:,} characters",
            received=f"{len(texts[index]):,} characters at index {index}",
        )
    return texts


def too_long(texts: Sequence[str]) -> int | None:
    """The place of the first text that is longer than any reference, if there is one."""
    return next((place for place, text in enumerate(texts) if len(text) > LONGEST_REFERENCE), None)


def checked_texts(texts: Sequence[str], name: str) -> list[str]:
    """The texts as a non-empty list of strings, or what is wrong with them."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise ArgumentError(
            f"{name} must be a list of strings, one for each sentence.",
            remedy="Wrap it in a list.",
            received=f"a single {type(texts).__name__}",
        )
    texts = list(texts)
    if not texts:
        raise ArgumentError(f"{name} must hold at least one sentence.", received="none")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ArgumentTypeError(
                f"{name} must be strings.",
                remedy="Decode bytes with .decode('utf-8').",
                received=f"{text!r} of type {type(text).__name__} at index {index}",
            )
    return texts
