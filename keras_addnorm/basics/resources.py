"""Texts that the package brings along as files: templates, pages and their scripts."""

from __future__ import annotations

import fnmatch
from importlib import resources


def read_resource(package: str | None, *place: str) -> str:
    """Return the text of a file in a package's folder: `read_resource(__package__, "a.md")`."""
    assert package is not None
    return resources.files(package).joinpath(*place).read_text(encoding="utf-8")


def list_resources(package: str | None, folder: str, pattern: str) -> list[str]:
    """Return the names of the files in a folder of a package that match a pattern, sorted."""
    assert package is not None
    names = (each.name for each in resources.files(package).joinpath(folder).iterdir())
    return sorted(fnmatch.filter(names, pattern))
