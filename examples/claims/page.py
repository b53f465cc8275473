"""From findings to a page: sections, tables, verdicts."""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections.abc import Sequence
from pathlib import Path

from claims.lab import Scale
from keras_addnorm.basics import atomic_file

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Verdict(enum.Enum):
    """Whether a claim showed itself here."""

    REPRODUCED = "reproduced"
    IN_PART = "reproduced in part"
    NOT_HERE = "not reproduced at this size"

    @classmethod
    def of(cls, *parts: bool) -> Verdict:
        """All parts of a claim hold, some do, or none."""
        if all(parts):
            return cls.REPRODUCED
        return cls.IN_PART if any(parts) else cls.NOT_HERE


@dataclasses.dataclass(frozen=True)
class Section:
    """One claim and what became of it.

    Attributes:
        title: A few words.
        claim: One sentence.
        formula: What lies behind it, as Markdown with LaTeX.
        experiment: What was done.
        findings: Paragraphs, tables and pictures.
        verdict: Whether it showed itself.
        because: What the verdict rests on, with numbers.
    """

    title: str
    claim: str
    formula: str
    experiment: str
    findings: Sequence[str]
    verdict: Verdict
    because: str

    def markdown(self, number: int) -> str:
        """The section as text."""
        blocks = [
            f"## {number}. {self.title}",
            f"**Claim.** {self.claim}",
            self.formula.strip(),
            f"**Experiment.** {self.experiment}",
            *self.findings,
            f"**Verdict: {self.verdict.value}.** {self.because}",
        ]
        return "\n\n".join(blocks)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, the others to the right."""
    lines = [header, ["---", *("---:" for _ in header[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float, digits: int = 2) -> str:
    """A number as a reader wants it: few digits, powers of ten only where they are needed."""
    if not math.isfinite(value):
        return "diverged"
    if value != 0 and not 1e-3 <= abs(value) < 1e4:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}·10{str(int(exponent)).translate(_RAISED)}"
    return f"{value:.{digits}f}" if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"


@dataclasses.dataclass(frozen=True)
class Part:
    """A page of its own: half of the claims.

    Attributes:
        title: Its heading.
        file: Its name, beside the page that leads to it.
        numbers: The claims on it.
    """

    title: str
    file: str
    numbers: Sequence[int]


PARTS = (
    Part("Why add", "why_add.md", (1, 2, 3, 8, 11, 13)),
    Part("Why norm", "why_norm.md", (4, 5, 6, 7, 9, 10, 12, 14)),
)


def write_pages(path: Path, scale: Scale, sections: dict[int, Section]) -> None:
    """Write the page with the verdicts and, beside it, one for each part.

    Claims that are not among the sections stay as the pages have them.
    """
    overview = ["# Why add, and why norm", _INTRODUCTION]
    for part in PARTS:
        texts = _written(path.parent / part.file)
        texts |= {n: one.markdown(n) for n, one in sections.items() if n in part.numbers}
        if not texts:
            continue
        found = [texts[index] for index in part.numbers if index in texts]
        verdicts = [_title_and_verdict(text) for text in found]
        overview += [f"## [{part.title}]({part.file})", table(["claim", "verdict"], verdicts)]
        _write(
            path.parent / part.file,
            f"# {part.title}",
            f"These are claims of [why add, and why norm]({path.name}#the-setting), which says how "
            "all of them were tried.",
            *found,
        )
    _write(path, *overview, "## The setting", _setting(scale))


def _written(path: Path) -> dict[int, str]:
    """The sections of a page by the number of their claim; none if there is no page."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    _, *sections = re.split(r"^## (?=\d+\. )", text, flags=re.MULTILINE)
    return {int(each.partition(".")[0]): f"## {each.strip()}" for each in sections}


def _title_and_verdict(text: str) -> list[str]:
    verdict = re.findall(r"^\*\*Verdict: (.+?)\.\*\*", text, flags=re.MULTILINE)[-1]
    return [text.splitlines()[0].removeprefix("## "), verdict]


def _write(path: Path, *blocks: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")


_INTRODUCTION = """\
Every sublayer of a Transformer ends with a residual connection and a normalisation, "Add & Norm".
Textbooks say why. Two pages try each reason on small models: a claim, a formula, an experiment, a
verdict. `python examples/why_add_and_norm.py` makes all numbers and pictures anew.

To see it by hand first: the notebooks
[Add & Norm from scratch](../notebooks/03_add_and_norm_from_scratch.ipynb) and
[Why norm](../notebooks/04_why_norm.ipynb), and a page in which models run,
[Add & Norm by hand](add_and_norm_by_hand.html)."""


def _setting(scale: Scale) -> str:
    return (
        f"English to German on the built-in demo set: {scale.pairs:,} sentence "
        f"pairs, a joint vocabulary of {scale.vocabulary_size} pieces, batches of "
        f"{scale.batch_size} sentences of at most {scale.length} pieces. The models are tiny: "
        f"width {scale.hidden_dim}, {scale.num_heads} heads, feed-forward width "
        f"{2 * scale.hidden_dim}, no dropout. *Depth* counts the layers of encoder and decoder "
        "together, half of them each: depth 12 is the 6+6 of the original paper. Each training is "
        f"{scale.steps} steps of Adam (β₂ = 0.98, no clipping). The learning rate rises linearly "
        "to its peak during the warm-up and then stays. *Loss* is the mean training loss of the "
        "last 20 steps in nats a token. The trainings of claims 1 to 8 were run once, with one "
        "seed: differences of a few hundredths in a loss mean nothing; those that a verdict rests "
        "on are larger. The later claims say with how many seeds they were tried."
    )
