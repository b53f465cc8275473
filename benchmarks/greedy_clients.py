"""Clients who ask a server for too much, each kind in a process of its own.

`serving.py --attack` starts them and measures an ordinary client beside them. It needs no package:

    python benchmarks/greedy_clients.py 8501 mine "a long word"      # until its input is closed
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import http.client
import itertools
import json
import random
import select
import socket
import sys
import threading
from collections.abc import Callable

LIMIT = 4 * 1024 * 1024
"""The default of --max-request-bytes."""


@dataclasses.dataclass(frozen=True)
class Attack:
    """What some clients ask for, again and again.

    Args:
        clients: How many they are.
        bodies: Makes what they send, in turns.
        reads: Whether they read what they get.
    """

    clients: int
    bodies: Callable[[], list[bytes]]
    reads: bool = True


def words(count: int) -> str:
    """Words of random letters."""
    return " ".join("".join(random.choices("abdikulermonz", k=6)) for _ in range(count))


def rows(count: int, longest: int, signature: str) -> bytes:
    """A request of many texts."""
    texts = [words(random.randint(1, longest)) for _ in range(count)]
    return json.dumps({"signature_name": signature, "inputs": {"texts": texts}}).encode()


def _long_word() -> list[bytes]:
    word = "".join(random.choices("abdikulermonz", k=4_100_000))
    return [json.dumps({"instances": [word]}).encode()]


def full_bodies() -> list[bytes]:
    """As large as may be: many numbers, many texts, one text of many words."""
    before, after = b'{"inputs": [', b"]}"
    room = LIMIT - len(before) - len(after) - 2
    return [
        before + middle + after
        for middle in (
            b"0," * (room // 2) + b"0",
            b'"a",' * (room // 4) + b'"a"',
            b'"%s"' % words(room // 7 - 1).encode(),
        )
    ]


ATTACKS = {
    "a long word": Attack(1, _long_word),
    "encode of 1,000 rows": Attack(1, lambda: [rows(1000, 25, "encode")]),
    "six times 10,000 rows": Attack(6, lambda: [rows(10_000, 12, "serving_default")]),
    # Answers of nearly three times --max-request-bytes; larger ones are refused.
    "ten who do not read": Attack(10, lambda: [rows(260, 25, "encode")], reads=False),
    "bodies at the limit": Attack(4, full_bodies),
}


class Attackers:
    """Runs the clients of one attack in threads."""

    def __init__(self, attack: Attack, port: int, model: str) -> None:
        self._attack, self._port = attack, port
        self._path = f"/v1/models/{model}:predict"
        self._bodies = itertools.cycle(attack.bodies())
        self._lock, self._stop = threading.Lock(), threading.Event()
        self.answers: collections.Counter[str] = collections.Counter()

    def run_until_told(self) -> None:
        """Attacks until the standard input ends."""
        work = self._ask if self._attack.reads else self._ask_only
        threads = [threading.Thread(target=work, daemon=True) for _ in range(self._attack.clients)]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        self._stop.set()

    def _next(self) -> bytes:
        with self._lock:
            return next(self._bodies)

    def _ask(self) -> None:
        while not self._stop.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
            try:
                connection.request("POST", self._path, self._next())
                answer = connection.getresponse()
                while answer.read(1 << 20):
                    pass
                self.answers[str(answer.status)] += 1
            except (OSError, http.client.HTTPException) as error:
                self.answers[type(error).__name__] += 1
            finally:
                connection.close()

    def _ask_only(self) -> None:
        body = self._next()
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        while not self._stop.is_set():
            with socket.create_connection(("127.0.0.1", self._port)) as connection:
                with contextlib.suppress(OSError):
                    connection.sendall(head.encode() + body)
                gone = select.poll()
                gone.register(connection, select.POLLRDHUP)
                while not self._stop.is_set() and not gone.poll(500):
                    pass
                self.answers["not read"] += 1


def main() -> None:
    port, model, name = sys.argv[1:]
    random.seed(5)
    attackers = Attackers(ATTACKS[name], int(port), model)
    attackers.run_until_told()
    print(json.dumps(attackers.answers))


if __name__ == "__main__":
    main()
