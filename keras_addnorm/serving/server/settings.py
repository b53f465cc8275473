"""Settings of a server."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from pathlib import Path
from typing import Any

from keras_addnorm.basics.argument_checks import to_path
from keras_addnorm.basics.fields import Rule, check_settings, check_types, setting

ANY_HOST = "*"
"""Among the allowed hosts: neither Host nor Origin is checked."""

_MEBIBYTE = 1024 * 1024
# A name, or all that end with it.
_HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9._-]{0,252}[A-Za-z0-9_])?")


def _port(default: int, help: str) -> Any:
    return setting(default, help, minimum=0, maximum=2**16 - 1)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Folder, addresses and limits of a server.

    `directory` is the folder of the versions, `saved_models/<name>`, and may be given as a string;
    `grpc_port=None` switches gRPC off. The help texts, which are those of the command's flags,
    describe the other fields. Without a flag are `intra_op_threads`, the threads that share one
    operation of TensorFlow (0: one for each core); `send_timeout`, the seconds that a client may
    take to read the next part of an answer; `poll_seconds` between two looks for a new version;
    and `grace_seconds`, which requests in flight may take after a stop.

    Raises:
        SettingsError: If a setting is of another type or outside its limits; it names all of them.
    """

    directory: Path
    name: str | None = setting(None, "the model's name in requests; else the folder's name")
    host: str = setting("127.0.0.1", "address to listen at; only this machine reaches 127.0.0.1")
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "more names under which it may be called, without port, as by a proxy; *.NAME: all below "
        "NAME; *: any, nothing is checked",
        metavar="NAME",
    )
    port: int = _port(8501, "port of REST and of the page; 0 is any free one")
    grpc_port: int | None = _port(8500, "port of gRPC; 0 is any free one")
    max_request_bytes: int = setting(
        4 * _MEBIBYTE,
        "the largest request; a fortieth of it is the longest text, and three times as much the "
        "largest answer, reckoned before it is computed",
        minimum=1,
    )
    max_held_bytes: int = setting(
        256 * _MEBIBYTE,
        "the most that all large requests and their answers may take together",
        minimum=1,
    )
    queue: int = setting(256, "the most requests that wait; further ones are refused", minimum=1)
    timeout: float = setting(
        30.0,
        "seconds that a request may take, waiting included; over REST, as many times that as it "
        "has portions of 64 rows or 16 KiB, at most 20 times",
        above=0,
    )
    max_batch_size: int = setting(64, "the most rows in a merged batch; 1 merges none", minimum=1)
    batch_timeout_ms: float = setting(
        2.0, "milliseconds that a request waits to be merged", minimum=0
    )
    workers: int = setting(
        2,
        "batches that are computed at the same time, and one more beside large requests",
        minimum=1,
    )
    cors: bool = setting(
        False, "let web pages of any origin call it, as --enable_cors_support of TensorFlow Serving"
    )
    warm_up: bool = setting(True, "compute a version's warm-up requests before it is served")
    verify: bool = setting(
        True, "compare the files of a version with its digests before it is served"
    )
    intra_op_threads: int = setting(1, minimum=0)
    send_timeout: float = setting(10.0, above=0)
    poll_seconds: float = setting(1.0, above=0)
    grace_seconds: float = setting(30.0, minimum=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "directory", to_path(self.directory))
        check_types(self, "server")
        names = [Rule(name, getattr(self, name) != "", "a name") for name in ("name", "host")]
        are_hosts = all(map(_is_host, self.allowed_hosts))
        hosts = "names or addresses without scheme and port, *.NAME, or *"
        check_settings(self, "server", [*names, Rule("allowed_hosts", are_hosts, hosts)])

    @property
    def model_name(self) -> str:
        """The model's name in requests."""
        return self.name or self.directory.resolve().name

    @property
    def max_answer_bytes(self) -> int:
        """The largest answer."""
        return 3 * self.max_request_bytes

    @property
    def max_values(self) -> int:
        """The most values in the JSON of a request: about twenty bytes of it for each."""
        return max(1, self.max_request_bytes // 20)

    @property
    def max_text_bytes(self) -> int:
        """The longest text of a request."""
        return max(1, self.max_request_bytes // 40)

    @property
    def max_rows(self) -> int:
        """The most rows, or texts, in a request."""
        return max(1, self.max_request_bytes // 400)


def _is_host(text: str) -> bool:
    if text == ANY_HOST or _HOST_NAME.fullmatch(text):
        return True
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False
