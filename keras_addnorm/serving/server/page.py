"""The web page at `/`: one file that loads nothing else, and its content security policy."""

from __future__ import annotations

import base64
import hashlib
import html
import re

from keras_addnorm.basics.resources import read_resource
from keras_addnorm.basics.web_page import security_headers, translation_form, translation_style

_STYLE, _FORM = "{{style}}", "{{form}}"
_MODEL = "{{model}}"
_NOTE = "{{note}}"


class Page:
    """The page of one model.

    Args:
        model: The model's name.

    Attributes:
        headers: HTTP headers that forbid the browser to load, run or send anything else.
    """

    def __init__(self, model: str) -> None:
        template = read_resource(__package__, "page.html")
        template = template.replace(_STYLE, translation_style()).replace(_FORM, translation_form())
        self._html = template.replace(_MODEL, html.escape(model))
        self.headers = security_headers(
            {
                "script-src": _hash_of("script", template),
                "style-src": _hash_of("style", template),
                "connect-src": "'self'",
            }
        )

    def html(self, note: str = "") -> str:
        """Returns the page, with what the card of an export has to say to those who try it."""
        return self._html.replace(_NOTE, html.escape(note))


def _hash_of(tag: str, page: str) -> str:
    (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest())
    return f"'sha256-{digest.decode('ascii')}'"
