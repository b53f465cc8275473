"""A hook of the site: reference pages that are made from the code at each build.

`mkdocs.yml` names their folders in its menu; the entries are filled in here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

# MkDocs puts this folder on the path while it imports a hook.
import api_pages
import command_pages
import menu
import settings_page


def pages(root: Path) -> dict[str, str]:
    """Make all reference pages.

    Args:
        root: The repository.

    Returns:
        The Markdown by the path on the site.
    """
    return {
        **api_pages.pages(root / "keras_addnorm"),
        settings_page.PATH: settings_page.page(),
        **command_pages.pages(),
    }


def entries(made: dict[str, str], folder: str) -> list[dict[str, str]]:
    """List the entries of a folder: the last word of each title, as all begin alike.

    Args:
        made: The pages by their paths.
        folder: The folder, with its final slash.

    Returns:
        Titles and pages, the overview first.
    """
    found = []
    for path, text in made.items():
        if path.startswith(folder):
            title = text.partition("\n")[0].rpartition(" ")[2].removeprefix("keras_addnorm.")
            found.append({"Overview" if path.endswith("/index.md") else title: path})
    return found


def on_config(config: Any) -> Any:
    """Fill the menu (MkDocs calls this)."""
    made = pages(Path(config.config_file_path).parent)
    for folder in (f"{api_pages.FOLDER}/", f"{command_pages.FOLDER}/"):
        config.nav = menu.fill(config.nav, folder, entries(made, folder))
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to the site's files (MkDocs calls this)."""
    from mkdocs.structure.files import File

    for uri, content in pages(Path(config.config_file_path).parent).items():
        files.append(File.generated(config, uri, content=content))
    return files
