"""Draws the picture of Add & Norm in five schemes: `python site_pages/draw_schemes.py`.

Writes `docs/images/schemes.svg`. Its colours follow the reader's: light, or dark.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "schemes.svg"

_WIDTH, _HEIGHT = 160, 300
_SKIP, _BRANCH = 45, 115  # where stream and sublayer stand in a column
_BOTTOM, _FORK, _SUM, _TOP = 252, 232, 92, 22  # heights, from below
_STYLE = """\
text{font:14px system-ui,sans-serif;text-anchor:middle;dominant-baseline:central;fill:#1f2430}
.paper{fill:#fff}.name{font-weight:600;font-size:15px}.formula{font-size:12.5px}
.line{stroke:#5b6475;stroke-width:1.6;fill:none}.arrow{fill:#5b6475}
.norm{fill:#fde7b0;stroke:#a8781a}.f{fill:#cfe3fa;stroke:#2c6aa8}
.gate{fill:#e6daf5;stroke:#7048a8}.sum{fill:#fff;stroke:#5b6475}
@media (prefers-color-scheme:dark){.paper{fill:#191d26}text{fill:#e4e7ee}
.line{stroke:#a5adbd}.arrow{fill:#a5adbd}
.norm{fill:#5c4a1c;stroke:#d8ac4f}.f{fill:#1f4266;stroke:#79aee4}
.gate{fill:#43305f;stroke:#b596e6}.sum{fill:#20242e;stroke:#a5adbd}}"""


class Scheme(NamedTuple):
    """A column of the picture.

    Attributes:
        name: Its heading.
        formula: What stands below.
        branch: The boxes of the branch, from below.
        skip: The box of the stream beside the branch, if there is one.
        after: The box behind the sum, if there is one.
    """

    name: str
    formula: str
    branch: tuple[str, ...]
    skip: str = ""
    after: str = ""


SCHEMES = (
    Scheme("Post-LN", "LN(x + F(x))", ("F",), after="LN"),
    Scheme("Pre-LN", "x + F(LN(x))", ("LN", "F")),
    Scheme("Sandwich-LN", "x + LN(F(LN(x)))", ("LN", "F", "LN")),
    Scheme("DeepNorm", "LN(α x + F(x))", ("F",), skip="× α", after="LN"),
    Scheme("ReZero", "x + α F(x)", ("F", "× α")),
)


def picture() -> str:
    """Returns the picture, as the text of an SVG file."""
    columns = "\n".join(_column(one, _WIDTH * place) for place, one in enumerate(SCHEMES))
    width = _WIDTH * len(SCHEMES)
    names = ", ".join(one.name for one in SCHEMES)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}" role="img" '
        f'aria-label="Add &amp; Norm in five schemes: {names}">\n<style>{_STYLE}</style>\n'
        # A page may be light where the reader's system is dark.
        f'<rect class="paper" width="{width}" height="{_HEIGHT}" rx="8"/>\n{columns}\n</svg>\n'
    )


def _column(scheme: Scheme, left: int) -> str:
    """A scheme: the stream from below upwards, and the sublayer F beside it."""
    skip, branch = left + _SKIP, left + _BRANCH
    step = (_FORK - _SUM) / (len(scheme.branch) + 1)
    parts = [
        f'<path class="line" d="M{skip} {_BOTTOM}V{_TOP + 6}"/>',
        f'<path class="arrow" d="M{skip - 5} {_TOP + 8}h10l-5 -9z"/>',
        f'<path class="line" d="M{skip} {_FORK}H{branch}V{_SUM}H{skip}"/>',
        f'<circle class="sum" cx="{skip}" cy="{_SUM}" r="12"/>',
        f'<text x="{skip}" y="{_SUM}">+</text>',
        f'<text x="{skip}" y="{_BOTTOM + 10}">x</text>',
        f'<text x="{skip - 14}" y="{_TOP + 2}">y</text>',
        f'<text class="name" x="{branch - 4}" y="{_TOP + 16}">{scheme.name}</text>',
        f'<text class="formula" x="{left + _WIDTH / 2}" y="{_HEIGHT - 14}">'
        f"{escape(scheme.formula)}</text>",
    ]
    for place, box in enumerate(scheme.branch, start=1):
        parts.append(_box(box, branch, _FORK - place * step))
    if scheme.skip:
        parts.append(_box(scheme.skip, skip, (_FORK + _SUM) / 2))
    if scheme.after:
        parts.append(_box(scheme.after, skip, (_SUM + _TOP) / 2 + 2))
    return "\n".join(parts)


def _box(text: str, x: float, y: float) -> str:
    kind = {"LN": "norm", "F": "f"}.get(text, "gate")
    return (
        f'<rect class="{kind}" x="{x - 24:g}" y="{y - 13:g}" width="48" height="26" rx="5"/>'
        f'<text x="{x:g}" y="{y:g}">{text}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"Written: {PICTURE}")
