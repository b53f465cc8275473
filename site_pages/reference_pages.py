"""A hook of the site: reference pages that are made from the code at each build.

`mkdocs.yml` names their folders in its menu; the entries are filled in here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

# MkDocs puts this folder on the path while it imports a hook.
import api_pages
import command_pages
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


def fill_menu(menu: list[Any], made: dict[str, str]) -> list[Any]:
    """Put pages in the place of the folders that a menu names.

    Args:
        menu: The menu as `mkdocs.yml` has it.
        made: The pages by their paths.

    Returns:
        The menu without folders.
    """

    def filled(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {title: filled(below) for title, below in entry.items()}
        if isinstance(entry, list):
            return [filled(below) for below in entry]
        if entry.endswith("/"):
            paths = [path for path in made if path.startswith(entry)]
            return [_titled(path, made[path]) for path in paths]
        return entry

    return [filled(entry) for entry in menu]


def _titled(path: str, text: str) -> dict[str, str]:
    """Return the entry of a page: the last word of its title, as all begin alike."""
    title = text.partition("\n")[0].removeprefix("# ")
    if path.endswith("index.md"):
        return {"Overview": path}
    return {title.rpartition(" ")[2].removeprefix("keras_addnorm."): path}


def on_config(config: Any) -> Any:
    """Fill the menu (MkDocs calls this)."""
    root = Path(config.config_file_path).parent
    config.nav = fill_menu(config.nav, pages(root))
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to the site's files (MkDocs calls this)."""
    from mkdocs.structure.files import File

    for uri, content in pages(Path(config.config_file_path).parent).items():
        files.append(File.generated(config, uri, content=content))
    return files
