"""Imports what only an extra of this package installs, or says which extra that is."""

from __future__ import annotations

import importlib
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
            f"{purpose} needs {found}. Install it with: pip install 'keras-addnorm[{extra}]'",
            name=error.name,
        ) from error
