"""How long an ordinary client waits for a server, and what memory it has, beside other clients.

`serving.py --attack` runs it.
"""

from __future__ import annotations

import collections
import contextlib
import http.client
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import greedy_clients
import hostile_clients

GROWTH, HEALTH_MS = 1.15, 100


class Served(Protocol):
    """A server's process and where it listens."""

    ports: dict[str, int]

    def megabytes(self) -> float: ...


class Beside:
    """An ordinary client, and one who asks how the server is, while others do what they like."""

    PATHS = ("/healthz", "/metrics")

    def __init__(self, served: Served, model: str) -> None:
        self._port, self._model = served.ports["rest"], model
        self._stop = threading.Event()
        self.milliseconds: dict[str, list[float]] = {"ordinary": [], **{p: [] for p in self.PATHS}}
        self.lost: list[str] = []

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Asks until the block ends."""
        threads = [threading.Thread(target=work) for work in (self._translate, self._look)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def figures(self) -> dict[str, float]:
        ordinary = [0.0, *self.milliseconds["ordinary"]]
        cuts = statistics.quantiles(ordinary, n=100, method="inclusive")
        return {
            "requests": len(ordinary) - 1,
            "p50_ms": cuts[49],
            "p99_ms": cuts[98],
            "longest_ms": max(ordinary),
            "lost": len(self.lost),
            **{f"{path}_ms": max(self.milliseconds[path], default=0.0) for path in self.PATHS},
        }

    def _translate(self) -> None:
        body = json.dumps({"instances": ["ba diku mon."]})
        while not self._stop.is_set():
            self._ask("ordinary", "POST", f"/v1/models/{self._model}:predict", body)
            self._stop.wait(0.02)

    def _look(self) -> None:
        for path in itertools.cycle(self.PATHS):
            if self._stop.wait(0.05):
                return
            self._ask(path, "GET", path)

    def _ask(self, kind: str, method: str, path: str, body: str | None = None) -> None:
        begin = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                self.lost.append(f"{kind}: {answer.status}")
        except (OSError, http.client.HTTPException) as error:
            self.lost.append(f"{kind}: {error!r}")
        finally:
            connection.close()
        self.milliseconds[kind].append(1000 * (time.perf_counter() - begin))


def attacked(
    served: Served, model: str, seconds: float, names: Sequence[str]
) -> list[dict[str, object]]:
    """An ordinary client alone, beside all attacks one after the other, and beside each."""
    print(
        "beside it              requests  p50 ms  p99 ms  longest  lost  /healthz  /metrics"
        "     MB  after  answers"
    )
    rows: list[dict[str, object]] = []
    warm = Beside(served, model)
    with warm.measuring():
        time.sleep(min(3, seconds))
    # TensorFlow keeps some memory of the largest request: what grows does so after the first time.
    each = {"nobody": ["nobody"], "each for a second": names, **{name: [name] for name in names}}
    for title, attacks in each.items():
        beside, answers = Beside(served, model), collections.Counter[str]()
        with beside.measuring():
            for name in attacks:
                with _attack(served, model, name) as found:
                    time.sleep(seconds if len(attacks) == 1 else min(1, seconds))
                    memory = served.megabytes()
                answers.update(found)
        after = _memory_after(served, rows)
        row = {"beside": title, **beside.figures(), "mb": memory, "mb_after": after}
        rows.append(row | {"answers": answers, "examples": beside.lost[:3]})
        print(
            f"{title:22} {row['requests']:8} {row['p50_ms']:7.0f} {row['p99_ms']:7.0f} "
            f"{row['longest_ms']:8.0f} {row['lost']:5} {row['/healthz_ms']:9.0f} "
            f"{row['/metrics_ms']:9.0f} {memory:6.0f} {after:6.0f}  {dict(answers)}",
            flush=True,
        )
    return rows


@contextlib.contextmanager
def _attack(served: Served, model: str, name: str) -> Iterator[dict[str, int]]:
    """Attacks meanwhile; yields what comes to hold the answers."""
    answers: dict[str, int] = {}
    if name not in greedy_clients.ATTACKS:
        yield answers
        return
    with subprocess.Popen(
        [sys.executable, greedy_clients.__file__, str(served.ports["rest"]), model, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        time.sleep(1.5)  # It makes what it sends.
        yield answers
        answers.update(json.loads(process.communicate()[0]))


def _memory_after(served: Served, rows: Sequence[dict[str, object]]) -> float:
    """Memory when all is calm again: at most 40 seconds later."""
    memory = served.megabytes()
    for _ in range(40 if rows else 0):
        if memory <= 1.05 * float(str(rows[min(len(rows) - 1, 1)]["mb_after"])):
            break
        time.sleep(1)
        memory = served.megabytes()
    return memory


def holds_out(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether nobody had to wait for somebody else's request, and memory does not grow."""
    calm, first_time, *others = rows
    return all(
        not row["lost"]
        and row["p99_ms"] < 10 * calm["p99_ms"]
        and max(row["/healthz_ms"], row["/metrics_ms"]) < 100
        and row["mb_after"] < GROWTH * first_time["mb_after"]
        for row in others
    )


def mixed(served: Served, model: str, minutes: int, minute: float = 60) -> dict[str, Any]:
    """All hostile clients at once; memory and the longest waits, each minute.

    Memory is compared with that after a minute of ordinary requests. `minute` is in seconds.
    """
    ordinary = Beside(served, model)
    with ordinary.measuring():
        time.sleep(minute)
    memory, rows = [served.megabytes()], []
    print("minute     MB  growth  requests  p50 ms  p99 ms  longest  lost  /healthz  /metrics")
    with subprocess.Popen(
        [
            sys.executable,
            hostile_clients.__file__,
            *(str(served.ports[name]) for name in ("rest", "grpc")),
            model,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        for number in range(1, minutes + 1):
            _look(served, model, minute, str(number), memory, rows)
        answers = json.loads(process.communicate()[0])
    time.sleep(minute)
    _look(served, model, minute / 6, "calm", memory, rows)
    print(json.dumps(answers, indent=1, sort_keys=True))
    return {"megabytes": memory, "growth": memory[-1] / memory[0], "rows": rows, "answers": answers}


def _look(
    served: Served,
    model: str,
    seconds: float,
    name: str,
    memory: list[float],
    rows: list[dict[str, Any]],
) -> None:
    """Measures for some seconds, and adds memory and a row."""
    beside = Beside(served, model)
    with beside.measuring():
        time.sleep(seconds)
    memory.append(served.megabytes())
    row = beside.figures() | {"examples": beside.lost[:3]}
    rows.append(row)
    print(
        f"{name:6} {memory[-1]:6.0f} {memory[-1] / memory[0]:7.2f} {row['requests']:9} "
        f"{row['p50_ms']:7.0f} {row['p99_ms']:7.0f} {row['longest_ms']:8.0f} {row['lost']:5} "
        f"{row['/healthz_ms']:9.0f} {row['/metrics_ms']:9.0f}",
        flush=True,
    )


def keeps_its_memory(figures: dict[str, Any]) -> bool:
    """Whether a mixed attack left no memory taken, lost no answer and kept nobody waiting."""
    return figures["growth"] <= GROWTH and all(
        not row["lost"] and row["/healthz_ms"] < HEALTH_MS for row in figures["rows"]
    )
