"""Entries of the site's menu for the pages of a folder."""

from __future__ import annotations

from typing import Any


def fill(menu: list[Any], folder: str, entries: list[dict[str, str]]) -> list[Any]:
    """Put entries in the place of a folder that the menu names.

    Args:
        menu: The menu as `mkdocs.yml` has it.
        folder: The folder, with its final slash.
        entries: Titles and pages. Where there are none, the folder's own entry is left out.

    Returns:
        The new menu.
    """
    found: list[Any] = []
    for entry in menu:
        if isinstance(entry, dict):
            ((title, below),) = entry.items()
            if below == folder:
                found += [{title: entries}] if entries else []
            elif isinstance(below, list):
                found.append({title: fill(below, folder, entries)})
            else:
                found.append(entry)
        else:
            found.append(entry)
    return found
