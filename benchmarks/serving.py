"""How fast is `keras-addnorm serve`, and does it last?

Starts the command in a process of its own and asks it over loopback. Without `--model` it exports a
small model with random weights, whose translations are as long as they may be.

    python benchmarks/serving.py                          # throughput and latency
    python benchmarks/serving.py --soak                   # 10,000 requests while versions change
    python benchmarks/serving.py --soak --swaps 40 --requests 40000
    python benchmarks/serving.py --attack                 # an ordinary client beside five others
    python benchmarks/serving.py --attack --minutes 30    # and its memory beside hostile ones
    python benchmarks/serving.py --model saved_models/mine --transport grpc
    python benchmarks/serving.py --smoke                  # a server a table, few requests
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import greedy_clients
import numpy as np
import serving_attacks
from measure import write_json

from keras_addnorm.serving import Client, Translation, load_translator
from keras_addnorm.serving.versions import existing_versions

NAME = "benchmark"
CLIENTS = (1, 8, 64)
SYLLABLES = ("ba", "di", "ku", "ler", "mon", "tö", "un", "vei", "zz", "aa", "ó", "ß")
BATCH = {"on": 64, "off": 1}
THREADS = (1, 0)  # That share one operation of TensorFlow; 0 is one for each core.
# The warm-up requests of an export are not for XLA.
SIGNATURES = ("serving_default", "translate_xla")
FIRST = (*SIGNATURES, "translate_nbest", "encode")


@dataclasses.dataclass(frozen=True)
class Served:
    """A server's process and where it listens."""

    process: subprocess.Popen[str]
    ports: dict[str, int]

    def client(self, transport: str) -> Client:
        host = "http://127.0.0.1" if transport == "rest" else "127.0.0.1"
        return Client(f"{host}:{self.ports[transport]}", model=NAME, timeout=300)

    def megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+(\d+)", status)
        assert found is not None
        return int(found[1]) / 1024

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serve(directory: Path, **settings: Any) -> Iterator[Served]:
    """Runs a server until the block ends, and wants it to end well."""
    settings = {"name": NAME, "port": 0, "grpc_port": 0, **settings}
    code = f"from keras_addnorm.runs.serve import serve; serve({str(directory)!r}, **{settings!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    ports: dict[str, int] = {}
    for line in process.stderr:
        if found := re.search(r"Ready: (http|gRPC)\D+127\.0\.0\.1:(\d+)", line):
            ports["rest" if found[1] == "http" else "grpc"] = int(found[2])
        if len(ports) == 2:
            break
    else:
        raise SystemExit("The server has not started.")
    # Its log is read on, or the pipe fills up and the server waits.
    log: list[str] = []
    reader = threading.Thread(target=lambda: log.extend(process.stderr), daemon=True)
    reader.start()
    try:
        yield Served(process, ports)
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait()
        reader.join()
        if status or any("Traceback" in line for line in log if "Refused" not in line):
            print("".join(log[-40:]), file=sys.stderr)
        assert status == 0, f"the server has ended with {status}"


def make_texts(count: int, seed: int, longest: int = 12) -> list[str]:
    """Sentences of invented words, of random lengths."""
    generator = random.Random(seed)
    return [
        " ".join(
            "".join(generator.choices(SYLLABLES, k=generator.randint(1, 4)))
            for _ in range(generator.randint(1, longest))
        )
        for _ in range(count)
    ]


def export_small_model(directory: Path, versions: int = 1) -> None:
    """Exports models with random weights, other ones in each version."""
    import keras

    from keras_addnorm.data import Tokenizer
    from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
    from keras_addnorm.serving import export_saved_model

    tokenizer = Tokenizer.train(make_texts(2000, seed=1), vocabulary_size=500)
    config = Seq2SeqConfig.preset(
        "tiny",
        source_vocabulary_size=500,
        target_vocabulary_size=500,
        num_encoder_layers=2,
        num_decoder_layers=2,
        hidden_dim=64,
        intermediate_dim=128,
        max_length=32,
    )
    for version in range(1, versions + 1):
        keras.utils.set_random_seed(version)
        model = Seq2SeqTransformer(config)
        generator = np.random.default_rng(version)
        # Fresh weights say the same whatever they read.
        model.set_weights([w + 0.3 * generator.normal(size=w.shape) for w in model.get_weights()])
        export_saved_model(
            *(model, tokenizer, directory, version),
            num_beams=2,
            max_length=16,
            batch_buckets=(1, 8, 64),
            length_buckets=(16,),
        )


def ask(
    served: Served, transport: str, signature: str, clients: int, texts: Sequence[str]
) -> tuple[float, list[float]]:
    """Shares texts out among clients, one a request; returns seconds and those of each request."""
    client = served.client(transport)
    seconds: list[float] = []
    queue = iter(texts)
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                text = next(queue, None)
            if text is None:
                return
            begin = time.perf_counter()
            client.predict(signature, texts=[text])
            seconds.append(time.perf_counter() - begin)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - begin
    client.close()
    return wall, seconds


def throughput(
    directory: Path, transport: str, requests: int, servers: int | None = None
) -> list[dict[str, object]]:
    """Asks with 1, 8 and 64 clients, with batching, threads and XLA and without.

    `servers` is how many of these servers are asked, None for all.
    """
    rows: list[dict[str, object]] = []
    print(
        "batching threads signature       clients  requests/s  cpu ms/request"
        "   p50 ms   p95 ms   p99 ms"
    )
    kinds = itertools.product(BATCH.items(), THREADS)
    for (batching, largest), threads in itertools.islice(kinds, servers):
        with serve(directory, max_batch_size=largest, intra_op_threads=threads) as served:
            for signature, clients in itertools.product(SIGNATURES, CLIENTS):
                texts = make_texts(requests, seed=clients)
                # Every shape is compiled before the clock runs.
                ask(served, transport, signature, clients, texts[: max(2 * clients, 20)])
                cpu = served.cpu_seconds()
                wall, seconds = ask(served, transport, signature, clients, texts)
                cpu = 1000 * (served.cpu_seconds() - cpu) / requests
                cuts = [1000 * cut for cut in statistics.quantiles(seconds, n=100)]
                rows.append(
                    {
                        "batching": batching,
                        "intra_op_threads": threads,
                        "signature": signature,
                        "clients": clients,
                        "requests_per_second": requests / wall,
                        "cpu_ms": cpu,
                        **{f"p{p}_ms": cuts[p - 1] for p in (50, 95, 99)},
                    }
                )
                print(
                    f"{batching:8} {threads:7} {signature:15} {clients:7} "
                    f"{requests / wall:11.1f} {cpu:15.2f} "
                    + " ".join(f"{cuts[p - 1]:8.1f}" for p in (50, 95, 99)),
                    flush=True,
                )
    return rows


def first_requests(
    directory: Path, transport: str, servers: int | None = None
) -> list[dict[str, object]]:
    """The first two requests of a server that has answered its warm-up requests, and of one not."""
    rows: list[dict[str, object]] = []
    print("\nwarm-up signature        start s   first ms  second ms")
    kinds = itertools.product((True, False), FIRST)
    for warm, signature in itertools.islice(kinds, servers):
        started = time.perf_counter()
        with serve(directory, warm_up=warm) as served, served.client(transport) as client:
            start = time.perf_counter() - started
            client.status()  # the connection is made
            times = []
            for text in make_texts(2, seed=5):
                begin = time.perf_counter()
                client.predict(signature, texts=[text])
                times.append(1000 * (time.perf_counter() - begin))
        row = {"warm_up": warm, "signature": signature, "start_s": start, "first_ms": times[0]}
        rows.append(row)
        print(
            f"{warm!s:7} {signature:15} {start:8.1f} {times[0]:10.1f} {times[1]:10.1f}", flush=True
        )
    return rows


class Soak:
    """Many requests, each compared with the offline translation, while versions change."""

    def __init__(
        self, templates: Path, transport: str, requests: int, swaps: int, clients: int = 8
    ) -> None:
        self._transport, self._requests, self._clients = transport, requests, clients
        self._swaps = swaps
        self._templates = [templates / str(n) for n in existing_versions(templates)]
        long = make_texts(20, seed=8, longest=200)
        self._texts = [*make_texts(180, seed=7), *long, "", "  ", "😀 ba", "שלום", "ba" * 500]
        self._expected = [load_translator(path)(self._texts) for path in self._templates]
        self._count = itertools.count(1)
        self.done = 0
        self.wrong: list[str] = []

    def run(self) -> dict[str, object]:
        """Runs it; the figures say whether all was well."""
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder)
            self._put(directory, 1)
            with serve(directory, poll_seconds=0.2) as served:
                begin = time.perf_counter()
                threads = [
                    threading.Thread(target=self._work, args=(served, seed))
                    for seed in range(self._clients)
                ]
                for thread in threads:
                    thread.start()
                memory = self._change_versions(directory, served)
                for thread in threads:
                    thread.join()
                wall = time.perf_counter() - begin
                memory.append(served.megabytes())
                with served.client(self._transport) as client:
                    states = [(state.version, state.state) for state in client.status()]
        return {
            "requests": self.done,
            "seconds": wall,
            "wrong": len(self.wrong),
            "examples": self.wrong[:5],
            "megabytes": memory,
            "growth": _growth(memory),
            "versions": states,
        }

    def _work(self, served: Served, seed: int) -> None:
        generator = random.Random(seed)
        client = served.client(self._transport)
        while next(self._count) <= self._requests:
            size = generator.choice((1, 1, 1, 2, 5))
            chosen = generator.choices(range(len(self._texts)), k=size)
            try:
                found = client.translate([self._texts[index] for index in chosen])
            except Exception as error:
                self.wrong.append(repr(error))
            else:
                # A request is answered by one version, whichever is served.
                if not any(self._is_answer(found, chosen, one) for one in self._expected):
                    self.wrong.append(f"{chosen}: {found}")
            self.done += 1
        client.close()

    @staticmethod
    def _is_answer(
        found: list[Translation], chosen: list[int], expected: list[Translation]
    ) -> bool:
        return all(
            text == expected[index].text and abs(score - expected[index].score) < 1e-3
            for (text, score), index in zip(found, chosen, strict=True)
        )

    def _change_versions(self, directory: Path, served: Served) -> list[float]:
        """Adds versions on the way, a broken one in the middle, and looks at memory."""
        memory = []
        with served.client("grpc") as client:
            for step in range(1, self._swaps + 1):
                while self.done < step * self._requests // (self._swaps + 1):
                    time.sleep(0.05)
                if step == (self._swaps + 1) // 2:
                    self._put_broken(directory, step + 1)
                else:
                    self._put(directory, step + 1)
                while not self._is_settled(client, step + 1):
                    time.sleep(0.2)
                time.sleep(1.0)  # the old version is freed
                memory.append(served.megabytes())
                print(
                    f"{self.done:6} requests, {memory[-1]:7.0f} MB, {len(self.wrong)} wrong",
                    flush=True,
                )
                if step > 3:
                    shutil.rmtree(directory / str(step - 2))
        return memory

    @staticmethod
    def _is_settled(client: Client, version: int) -> bool:
        states = {state.version: state.state for state in client.status()}
        return states.get(version) in ("AVAILABLE", "END")

    def _put(self, directory: Path, version: int) -> None:
        hidden = directory / f".{version}"
        shutil.copytree(self._templates[version % len(self._templates)], hidden)
        hidden.rename(directory / str(version))

    def _put_broken(self, directory: Path, version: int) -> None:
        self._put(directory, version)
        (directory / str(version) / "saved_model.pb").write_bytes(b"\x0a\xff\xffnonsense")


def _growth(memory: Sequence[float]) -> float:
    """How much more the second half takes than the first, lows by lows and highs by highs.

    Lows are one version, highs are two: the old one is being freed.
    """
    half = len(memory) // 2
    first, second = memory[1:half], memory[half:]  # the first reading is the warm-up
    return max(min(second) / min(first), max(second) / max(first)) - 1


def attacked(directory: Path, seconds: float, names: Sequence[str]) -> list[dict[str, object]]:
    """An ordinary client of a new server alone, and beside each attack."""
    with serve(directory) as served:
        return serving_attacks.attacked(served, NAME, seconds, names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="folder of versions; default: a small model")
    parser.add_argument("--transport", choices=("rest", "grpc"), default="rest")
    parser.add_argument("--requests", type=int, help="of each row; of the soak (default 10,000)")
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--swaps", type=int, default=9, help="of versions in the soak, at least 5")
    parser.add_argument("--attack", action="store_true", help="exits with 1 if somebody waits")
    parser.add_argument("--seconds", type=float, default=20, help="of each attack")
    parser.add_argument("--minutes", type=int, help="of all hostile clients at once, for --attack")
    parser.add_argument("--smoke", action="store_true", help="one server a table, 8 requests")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = options.model or Path(folder) / NAME
        if options.model is None:
            export_small_model(directory, versions=2 if options.soak else 1)
        if options.soak:
            figures: dict[str, object] = Soak(
                directory, options.transport, options.requests or 10_000, options.swaps
            ).run()
            print(figures)
            status = int(bool(figures["wrong"]) or figures["growth"] > 0.05)
        elif options.attack and options.minutes:
            with serve(directory) as served:
                figures = serving_attacks.mixed(served, NAME, options.minutes)
            status = int(not serving_attacks.keeps_its_memory(figures))
        elif options.attack:
            rows = attacked(directory, options.seconds, list(greedy_clients.ATTACKS))
            figures = {"attacks": rows}
            status = int(not serving_attacks.holds_out(rows))
        else:
            servers = 1 if options.smoke else None
            requests = options.requests or (8 if options.smoke else 300)
            figures = {
                "throughput": throughput(directory, options.transport, requests, servers),
                "first": first_requests(directory, options.transport, servers),
            }
            if options.smoke:
                figures["attacks"] = attacked(directory, 1, list(greedy_clients.ATTACKS)[:1])
                with serve(directory, warm_up=False) as served:
                    figures["mixed"] = serving_attacks.mixed(served, NAME, 1, minute=6)
            status = 0
    if options.json:
        write_json(options.json, figures)
    return status


if __name__ == "__main__":
    sys.exit(main())
