"""Errors and states of a server's models, as both the client and the server name them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from keras_addnorm.basics.errors import shown

# The canonical status codes: what gRPC counts them as, and what TensorFlow Serving answers over
# HTTP.
CODES: dict[str, tuple[int, int]] = {
    "CANCELLED": (1, 499),
    "UNKNOWN": (2, 500),
    "INVALID_ARGUMENT": (3, 400),
    "DEADLINE_EXCEEDED": (4, 504),
    "NOT_FOUND": (5, 404),
    "ALREADY_EXISTS": (6, 409),
    "PERMISSION_DENIED": (7, 403),
    "RESOURCE_EXHAUSTED": (8, 429),
    "FAILED_PRECONDITION": (9, 400),
    "ABORTED": (10, 409),
    "OUT_OF_RANGE": (11, 400),
    "UNIMPLEMENTED": (12, 501),
    "INTERNAL": (13, 500),
    "UNAVAILABLE": (14, 503),
    "DATA_LOSS": (15, 500),
    "UNAUTHENTICATED": (16, 401),
}


NOT_FINITE = "A logit was NaN or infinite"
"""How the message of a search begins whose model computed something that is no number."""


class ServingError(RuntimeError):
    """A request could not be answered.

    Args:
        code: A key of `CODES`, such as `"NOT_FOUND"`.
        message: What happened.

    Attributes:
        code: The code.
        message: The message.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    def __str__(self) -> str:
        # What a server says is shown to users of its clients.
        return shown(super().__str__())

    @property
    def http_status(self) -> int:
        """The status that TensorFlow Serving answers with over HTTP."""
        return CODES[self.code][1]


LARGEST_ANSWER = 256 << 20
"""So many bytes a client reads of an answer."""

MOST_VALUES = 4_000_000
"""So many values an answer of JSON has: in Python each takes many times what it has as text."""

MOST_AXES = 254
"""Axes of a tensor in TensorFlow; the product of very many sizes takes minutes."""


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Lets an answer be read in the block; one that no server of models gives is refused."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ServingError(
            "INTERNAL",
            f"The answer is not that of a server of translation models ({type(error).__name__}: "
            f"{error}). Look at the address and at the model's name.",
        ) from error


class VersionStatus(NamedTuple):
    """The state of a version of a model.

    Attributes:
        version: Its number.
        state: `"AVAILABLE"`, `"LOADING"`, `"UNLOADING"` or `"END"`.
        error_code: `"OK"`, or why it is not served.
        error_message: The reason in words.
    """

    version: int
    state: str
    error_code: str
    error_message: str
