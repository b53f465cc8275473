"""Clients who send a server what they should not, all kinds at the same time.

`serving.py --attack --minutes 30` starts them, and looks at the server's memory:

    python benchmarks/hostile_clients.py 8501 8500 mine        # until its input is closed
"""

from __future__ import annotations

import collections
import contextlib
import gzip
import http.client
import json
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import greedy_clients

_SECONDS = 60.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HOSTS = ("evil.example", "", "localhost.evil.example", "[::", "a" * 5000, "\x1b[2J", "127.0.0.1@b")
_ORIGINS = ("http://evil.example", "null", "file://", "http://localhost@evil.example", "x" * 5000)
_SEEDS = (
    b'{"instances": ["ba diku mon."]}',
    b'{"inputs": {"texts": ["ba", "ku"]}, "signature_name": "translate_nbest"}',
    b'{"instances": [{"texts": "ba"}]}',
    b'{"instances": [1, null, {"b64": "?"}, [[["a"]]]]}',
    b'{"inputs": [1e999, NaN, -Infinity], "signature_name": 7}',
)


class Clients:
    """One client of each kind, each in a thread.

    Args:
        rest: The port of REST.
        grpc: The port of gRPC.
        model: The name of the model.
    """

    def __init__(self, rest: int, grpc: int, model: str) -> None:
        self._rest, self._grpc = rest, grpc
        self._path = f"/v1/models/{model}:predict"
        self._stop = threading.Event()
        self.answers: collections.Counter[str] = collections.Counter()

    def run_until_told(self) -> None:
        """Attacks until the standard input ends."""
        threads = [
            threading.Thread(target=self._repeat, args=(kind,), daemon=True) for kind in KINDS
        ]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        self._stop.set()

    def _repeat(self, kind: str) -> None:
        while not self._stop.wait(random.uniform(0, 0.2)):
            try:
                for answer in KINDS[kind](self):
                    self.answers[f"{kind}: {answer}"] += 1
            except OSError as error:
                self.answers[f"{kind}: {type(error).__name__}"] += 1

    def post(self, body: bytes, path: str = "", **headers: str) -> str:
        """Sends a request; returns the status of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._rest, timeout=_SECONDS)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("POST", path or self._path, body, named)
            answer = connection.getresponse()
            while answer.read(1 << 20):
                pass
            return str(answer.status)
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__
        finally:
            connection.close()

    def head(self, length: object) -> bytes:
        """What stands before a body."""
        return (
            f"POST {self._path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        ).encode()

    def connected(self, port: int | None = None) -> socket.socket:
        """A connection, for what is no request."""
        return socket.create_connection(("127.0.0.1", port or self._rest), _SECONDS)

    def said(self, connection: socket.socket) -> str:
        """The status of what comes back."""
        try:
            found = connection.recv(65536)
        except OSError as error:
            return type(error).__name__
        return found[9:12].decode("latin-1") if found.startswith(b"HTTP/1.1") else "closed"

    def ordinary(self) -> Iterator[str]:
        texts = [greedy_clients.words(random.randint(1, 30)) for _ in range(random.randint(1, 5))]
        yield self.post(json.dumps({"instances": texts}).encode())

    def large(self) -> Iterator[str]:
        word = "".join(random.choices("abdi", k=1000))
        for body in (
            json.dumps({"instances": [word * 1000]}).encode(),
            json.dumps({"instances": [word * 95]}).encode(),
            json.dumps({"instances": ["Ba ku di. " * 9500]}).encode(),
            greedy_clients.rows(10_000, 3, "serving_default"),
            greedy_clients.rows(260, 25, "encode"),
            greedy_clients.rows(random.randint(1, 90), 30, "translate_nbest"),
            *greedy_clients.full_bodies(),
        ):
            if not self._stop.is_set():
                yield self.post(body)

    def malformed(self) -> Iterator[str]:
        body = bytearray(random.choice(_SEEDS))
        for _ in range(random.randint(0, 3)):
            body[random.randrange(len(body))] = random.randrange(256)
        yield self.post(bytes(body[: random.randint(1, len(body))]))
        depth = random.choice((40, 5_000, 100_000))
        yield self.post(b'{"inputs": ' + b"[" * depth + b"]" * depth + b"}")
        yield self.post(b'{"inputs": [1, "' + b'\\",' * 10 * depth + b"\\")  # a cut string
        yield self.post(b'{"inputs": ' + b'{"a": ' * depth + b"1" + b"}" * depth + b"}")

    def packed(self) -> Iterator[str]:
        bomb = gzip.compress(bytes(20_000_000))
        yield self.post(bomb, Content_Encoding="gzip")
        yield self.post(bomb[: len(bomb) // 2], Content_Encoding="gzip")
        yield self.post(b"{}", Content_Encoding="br")

    def other_names(self) -> Iterator[str]:
        for name, values in (("Host", _HOSTS), ("Origin", _ORIGINS)):
            headers = {name: random.choice(values).encode("latin-1").decode("latin-1")}
            with contextlib.suppress(ValueError):  # The client itself refuses control characters.
                yield self.post(_SEEDS[0], **headers)
        with self.connected() as connection:
            connection.sendall(f"GET /{random.random()} HTTP/1.0\r\n\r\n".encode())
            yield self.said(connection)

    def other_models(self) -> Iterator[str]:
        name, version = f"m{random.random()}", random.randrange(2 ** random.randint(1, 80))
        body = json.dumps({"instances": ["a"], "signature_name": f"s{random.random()}"}).encode()
        yield self.post(body)
        yield self.post(body, f"/v1/models/{name}:predict")
        yield self.post(body, f"{self._path.partition(':')[0]}/versions/{version}:predict")
        yield self.post(body, f"/v1/models/{name}/labels/{version}:classify")

    def lengths(self) -> Iterator[str]:
        for length in (-1, "x", 10**13, 5, 10**4, "7, 7"):
            with self.connected() as connection:
                connection.sendall(self.head(length) + _SEEDS[0])
                connection.shutdown(socket.SHUT_WR)
                yield self.said(connection)

    def half_closed(self) -> Iterator[str]:
        with self.connected() as connection:
            connection.sendall(self.head(len(_SEEDS[0])) + _SEEDS[0])
            connection.shutdown(socket.SHUT_WR)
            yield self.said(connection)

    def leaving(self) -> Iterator[str]:
        body = greedy_clients.rows(random.randint(1, 2000), 5, "serving_default")
        with self.connected() as connection:
            connection.sendall(self.head(len(body)) + body)
            time.sleep(random.uniform(0, 0.2))
        yield "gone"

    def slow(self) -> Iterator[str]:
        with contextlib.ExitStack() as stack:
            them = [stack.enter_context(self.connected()) for _ in range(40)]
            for byte in self.head(10):
                if self._stop.wait(0.5):
                    return
                for connection in them:
                    with contextlib.suppress(OSError):
                        connection.sendall(bytes([byte]))
            yield "tried"

    def pipelined(self) -> Iterator[str]:
        with self.connected() as connection:
            connection.settimeout(2)
            with contextlib.suppress(OSError):
                connection.sendall((self.head(len(_SEEDS[0])) + _SEEDS[0]) * 500)
            yield self.said(connection)

    def not_grpc(self) -> Iterator[str]:
        for start in (b"", _PREFACE, _PREFACE + bytes(9), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"):
            with self.connected(self._grpc) as connection:
                connection.settimeout(5)
                connection.sendall(start + random.randbytes(random.randint(1, 3000)))
                yield self.said(connection)


KINDS: dict[str, Callable[[Clients], Iterator[str]]] = {
    "ordinary": Clients.ordinary,
    "large": Clients.large,
    "malformed": Clients.malformed,
    "packed": Clients.packed,
    "other names": Clients.other_names,
    "other models": Clients.other_models,
    "lengths": Clients.lengths,
    "half-closed": Clients.half_closed,
    "leaving": Clients.leaving,
    "slow": Clients.slow,
    "pipelined": Clients.pipelined,
    "not gRPC": Clients.not_grpc,
}


def main() -> None:
    rest, grpc, model = sys.argv[1:]
    random.seed(5)
    clients = Clients(int(rest), int(grpc), model)
    clients.run_until_told()
    print(json.dumps(clients.answers))


if __name__ == "__main__":
    main()
