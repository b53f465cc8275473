"""A hook of the site: what search engines show below a page's title.

It is the beginning of the page's first paragraph, so that it is written once, and for readers.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

_LONGEST = 160


def description(markdown: str) -> str:
    """Return the beginning of the first paragraph, as plain text; empty where there is none."""
    in_code = False
    for block in re.split(r"\n\s*\n", markdown):
        is_text = not in_code and re.match(r"[`*\[]*\w", block.strip()) is not None
        in_code ^= block.count("```") % 2 == 1
        if is_text and "```" not in block:
            text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split()))
            return textwrap.shorten(re.sub(r"[`*]", "", text), _LONGEST, placeholder=" ...")
    return ""


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Describe a page that does not do so itself (MkDocs calls this)."""
    if found := description(markdown):
        page.meta.setdefault("description", found)
    return markdown
