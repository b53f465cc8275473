"""A hook of the site: formulas between dollar signs become MathML, which browsers draw themselves.

`arithmatex` marks them while Markdown is read; here LaTeX becomes MathML, once, when the site is
built. A page loads nothing for it, and works without a network and without JavaScript.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

_MARKED = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def with_formulas(page: str, convert: Callable[..., str]) -> str:
    """Replace marked LaTeX.

    Args:
        page: The HTML of a page.
        convert: Makes MathML of LaTeX, and takes `display="block"` or `"inline"`.

    Returns:
        The page with MathML.
    """

    def formula(match: re.Match[str]) -> str:
        display = "block" if match["tag"] == "div" else "inline"
        return convert(html.unescape(match["latex"]).strip(), display=display)

    return _MARKED.sub(formula, page)


def on_page_content(text: str, **kwargs: Any) -> str:
    """Is called by MkDocs with the HTML of each page."""
    if "arithmatex" not in text:
        return text
    from latex2mathml.converter import convert

    return with_formulas(text, convert)
