"""How a server runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

_POSITIVE = (
    "max_body_bytes",
    "max_rows",
    "queue",
    "timeout",
    "max_batch_size",
    "workers",
    "poll_seconds",
)


def _setting(default: Any, text: str) -> Any:
    """A field with its help text, which the command shows as well."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a server serves, where, and within which limits.

    `directory` is the folder of the versions, `saved_models/<name>`, and may be given as a string.
    The other fields say below what they are; `grpc_port=None` is no gRPC.

    Raises:
        ValueError: If a limit is not positive, or `intra_op_threads` negative.
    """

    directory: Path
    name: str | None = _setting(None, "the model's name in requests; that of the folder")
    host: str = _setting("127.0.0.1", "address to listen at; only this machine reaches 127.0.0.1")
    port: int = _setting(8501, "port of REST and of the page; 0 is any free one")
    grpc_port: int | None = _setting(8500, "port of gRPC; 0 is any free one")
    max_body_bytes: int = _setting(4 * 1024 * 1024, "the largest request")
    max_rows: int = _setting(10_000, "how many rows, such as texts, a request may have")
    queue: int = _setting(256, "how many requests may wait; one more is refused")
    timeout: float = _setting(30.0, "seconds a request may take, waiting and at work")
    max_batch_size: int = _setting(64, "up to how many rows are merged; 1 merges none")
    batch_timeout_ms: float = _setting(2.0, "how long a request waits for others to join")
    workers: int = _setting(2, "how many batches are computed at the same time")
    intra_op_threads: int = _setting(
        1, "threads that share one operation of TensorFlow; 0 is one for each core"
    )
    poll_seconds: float = _setting(1.0, "how often the folder is looked at for a new version")
    grace_seconds: float = _setting(30.0, "how long requests in flight may take at the end")
    warm_up: bool = _setting(True, "answer a version's warm-up requests before it is served")

    def __post_init__(self) -> None:
        object.__setattr__(self, "directory", Path(self.directory))
        for field in _POSITIVE:
            if not getattr(self, field) > 0:
                raise ValueError(f"Expected a positive {field}; received {getattr(self, field)!r}.")
        if self.intra_op_threads < 0:
            raise ValueError(
                f"Expected intra_op_threads >= 0; received {self.intra_op_threads}. 0 is one for "
                "each core."
            )

    @property
    def model_name(self) -> str:
        """The model's name in requests."""
        return self.name or self.directory.resolve().name
