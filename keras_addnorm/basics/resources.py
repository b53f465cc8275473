"""Texts that the package brings along as files: templates, pages and their scripts."""

from __future__ import annotations

from importlib import resources


def read_resource(package: str | None, *place: str) -> str:
    """Return the text of a file in a package's folder: `read_resource(__package__, "a.md")`."""
    assert package is not None
    return resources.files(package).joinpath(*place).read_text(encoding="utf-8")
