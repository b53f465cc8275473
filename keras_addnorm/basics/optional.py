"""Imports what only an extra of this package installs, or says which extra that is."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import shlex
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any


def require_extra(extra: str, purpose: str, *modules: str) -> tuple[Any, ...]:
    """Imports modules that an extra of this package installs.

    Args:
        extra: The extra, such as `"serve"`.
        purpose: What needs the modules, as the beginning of a sentence: `"The server"`.
        *modules: Their dotted names.

    Returns:
        The modules, in the order of their names.

    Raises:
        ImportError: If one is not installed, or cannot be imported; the message names the extra.

    Example:
        >>> from keras_addnorm.basics.optional import require_extra
        >>> (json,) = require_extra("serve", "The server", "json")
        >>> json.dumps([1])
        '[1]'
    """
    try:
        return tuple(importlib.import_module(name) for name in modules)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError)
        found = f"{error.name!r}, which is not installed" if missing else f"a package: {error}"
        raise ImportError(
            f"{purpose} needs {found}. Install it with: {install_line(extra)}", name=error.name
        ) from error


def require_installed(extra: str, purpose: str, *modules: str) -> None:
    """Raises the error of `require_extra` for modules that are not there, without importing any.

    Args:
        extra: The extra.
        purpose: What needs the modules, as the beginning of a sentence.
        *modules: Their names, without dots.

    Raises:
        ImportError: If one is not installed.
    """
    for name in modules:
        # What is imported already need not be found by the same way again.
        is_imported = sys.modules.get(name) is not None
        if not is_imported and importlib.util.find_spec(name) is None:
            require_extra(extra, purpose, name)


def install_line(extra: str) -> str:
    """Returns the command that installs an extra, wherever this package has come from.

    Args:
        extra: The extra.

    Returns:
        For a clone of the repository, the command of its README, which keeps to the versions in
        `constraints.txt`; else that for a package of a registry.

    Example:
        >>> from keras_addnorm.basics.optional import install_line
        >>> install_line("serve").startswith("pip install ")
        True
    """
    folder, is_editable = _clone()
    if folder is None:
        return f"pip install 'keras-addnorm[{extra}]'"
    here = folder.resolve() == Path.cwd()
    constraints = "constraints.txt" if here else shlex.quote(str(folder / "constraints.txt"))
    wanted = f'".[{extra}]"' if here else shlex.quote(f"{folder}[{extra}]")
    return f"pip install -c {constraints} {'-e ' * is_editable}{wanted}"


def _clone() -> tuple[Path | None, bool]:
    """The clone that this package is a part of, or was installed from, and whether it still is."""
    source = Path(__file__).parents[2]
    if (source / "constraints.txt").is_file():
        return source, True
    try:
        text = importlib.metadata.distribution("keras-addnorm").read_text("direct_url.json")
        url = urllib.parse.urlparse(json.loads(text or "{}").get("url", ""))
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None, False
    folder = Path(urllib.request.url2pathname(url.path))
    is_there = url.scheme == "file" and (folder / "constraints.txt").is_file()
    return (folder if is_there else None), False
