"""A hook of the site: what the search shows last.

Decision records and measurements name everything that was ever tried. Whoever looks for a word
wants the page about it first.
"""

from __future__ import annotations

from typing import Any

_LAST = ("decisions/", "repository/benchmarks/")
_BOOST = 0.3


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Rank a page for the search (MkDocs calls this)."""
    if page.file.src_uri.startswith(_LAST):
        page.meta.setdefault("search", {"boost": _BOOST})
    return markdown
