"""Settings of a server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_addnorm.basics.argument_checks import is_number, is_whole
from keras_addnorm.basics.paths import to_path

_POSITIVE = (
    "max_body_bytes",
    "max_rows",
    "max_values",
    "max_text_bytes",
    "max_answer_bytes",
    "max_held_bytes",
    "queue",
    "timeout",
    "max_batch_size",
    "workers",
    "poll_seconds",
    "send_timeout",
)


# What a setting of each declared type may be.
_KINDS: dict[str, Callable[[Any], bool]] = {
    "int": is_whole,
    "float": is_number,
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str) and value != "",
    "Path": lambda value: isinstance(value, str | Path),
}


def _setting(default: Any, text: str) -> Any:
    """A field with the help text of its command-line option."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Settings:
    """Folder, addresses and limits of a server.

    `directory` is the folder of the versions, `saved_models/<name>`, and may be given as a string.
    The help texts describe the other fields; `grpc_port=None` switches gRPC off.

    Raises:
        ValueError: If a setting is of another type, a limit is not positive, a number is negative
            or not finite, or a port is not from 0 to 65535.
    """

    directory: Path
    name: str | None = _setting(None, "the model's name in requests; else the folder's name")
    host: str = _setting("127.0.0.1", "address to listen at; only this machine reaches 127.0.0.1")
    port: int = _setting(8501, "port of REST and of the page; 0 is any free one")
    grpc_port: int | None = _setting(8500, "port of gRPC; 0 is any free one")
    max_body_bytes: int = _setting(4 * 1024 * 1024, "the largest request")
    max_rows: int = _setting(10_000, "the most rows (texts) in a request")
    max_values: int = _setting(200_000, "the most values in the JSON of a request")
    max_text_bytes: int = _setting(100_000, "the longest text of a request, in bytes")
    max_answer_bytes: int = _setting(
        12 * 1024 * 1024, "the largest answer, reckoned from the request before it is computed"
    )
    max_held_bytes: int = _setting(
        256 * 1024 * 1024, "the most that all large requests and their answers may take together"
    )
    queue: int = _setting(256, "the most requests that wait; further ones are refused")
    timeout: float = _setting(30.0, "seconds that a request may take, waiting included")
    send_timeout: float = _setting(
        10.0, "seconds that a client may take to read the next part of an answer"
    )
    max_batch_size: int = _setting(64, "the most rows in a merged batch; 1 merges none")
    batch_timeout_ms: float = _setting(2.0, "milliseconds that a request waits to be merged")
    workers: int = _setting(
        2, "batches that are computed at the same time, and one more beside large requests"
    )
    intra_op_threads: int = _setting(
        1, "threads that share one operation of TensorFlow; 0 is one for each core"
    )
    poll_seconds: float = _setting(1.0, "seconds between two looks for a new version in the folder")
    grace_seconds: float = _setting(30.0, "seconds that requests in flight may take after a stop")
    cors: bool = _setting(
        False, "let web pages of any origin call it, as --enable_cors_support of TensorFlow Serving"
    )
    warm_up: bool = _setting(True, "compute a version's warm-up requests before it is served")
    verify: bool = _setting(
        True, "compare the files of a version with its digests before it is served"
    )

    def __post_init__(self) -> None:
        self._check_types()
        object.__setattr__(self, "directory", to_path(self.directory))
        for field in _POSITIVE:
            if not getattr(self, field) > 0:
                raise ValueError(
                    f"Expected a positive `{field}`; received {getattr(self, field)!r}."
                )
        for field in ("port", "grpc_port"):
            port = getattr(self, field)
            if port is not None and not 0 <= port < 2**16:
                raise ValueError(f"Expected `{field}` from 0 to 65535; received {port}.")
        if self.intra_op_threads < 0:
            raise ValueError(
                f"Expected intra_op_threads >= 0; received {self.intra_op_threads}. 0 is one for "
                "each core."
            )
        for field, value in vars(self).items():
            if is_number(value) and value < 0:
                raise ValueError(f"Expected a `{field}` of at least 0; received {value!r}.")

    def _check_types(self) -> None:
        """Raise unless each setting is of its declared type."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kind, *optional = str(field.type).split(" | ")
            if value is None and optional:
                continue
            fits = _KINDS.get(kind)
            if fits is not None and not fits(value):
                raise ValueError(
                    f"Expected `{field.name}` to be of the type {field.type}, and a number to be "
                    f"finite; received {value!r}."
                )

    @property
    def model_name(self) -> str:
        """The model's name in requests."""
        return self.name or self.directory.resolve().name
