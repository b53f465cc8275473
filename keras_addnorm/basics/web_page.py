"""Pages of HTML: data in them; what those with a field for a text share and may load."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from keras_addnorm.basics.resources import read_resource

_MOST_NUMBERS = 1 << 17  # of one quantity
_FORBIDDEN = {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"}
# The empty icon; without it browsers request one.
_ICON = {"img-src": "data:"}

IN_BROWSER_POLICY: Mapping[str, str] = {
    "script-src": "'self' 'wasm-unsafe-eval'",
    "style-src": "'self'",
    "connect-src": "'self'",
    # The engine's thread is a blob, so that it has the policy of the page.
    "worker-src": "'self' blob:",
}
"""What a page that translates in the browser may load: files from where it comes from itself."""

T = TypeVar("T")


def json_in_html(data: Any) -> str:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def shown_steps(steps: Sequence[T], sublayers: int) -> list[T]:
    """Return steps of a training that a page has room for, evenly chosen, with the last one.

    Args:
        steps: All of them, in order.
        sublayers: How many numbers of a kind the page has of each.

    Returns:
        The steps; all of them if they are not too many.

    Example:
        >>> shown_steps([1, 2, 3, 4, 5], 50_000)
        [1, 3, 5]
    """
    every = max(1, -(-len(steps) * sublayers // _MOST_NUMBERS))
    return list(steps[::-1][::every][::-1])


def translation_style() -> str:
    """Return the style of pages that translate."""
    return read_resource(__package__, "translation_page", "page.css").rstrip("\n")


def translation_form() -> str:
    """Return the JavaScript of the form of such pages."""
    return read_resource(__package__, "translation_page", "form.js").rstrip("\n")


def content_security_policy(allowed: Mapping[str, str]) -> str:
    """Return a policy that forbids everything but what is allowed, by directive."""
    return "; ".join(map(" ".join, {**_FORBIDDEN, **_ICON, **allowed}.items()))


def security_headers(allowed: Mapping[str, str]) -> dict[str, str]:
    """Return the HTTP headers of a page with such a policy, which no other page may frame."""
    return {
        "content-security-policy": content_security_policy(
            {**allowed, "frame-ancestors": "'none'"}
        ),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
