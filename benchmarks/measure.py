"""What the benchmarks share: contenders timed in turn in one process, a table, a JSON file.

The scripts of this folder import it as `measure`, which Python finds beside them.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import json
import re
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Timing:
    """The rounds of one contender, in milliseconds a call.

    Processor time counts all threads: on a busy machine it is steadier than wall time.
    """

    wall_ms: tuple[float, ...]
    cpu_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.wall_ms)

    @property
    def best_ms(self) -> float:
        return min(self.wall_ms)

    @property
    def median_cpu_ms(self) -> float:
        return statistics.median(self.cpu_ms)

    @property
    def best_cpu_ms(self) -> float:
        """What is left when nothing else takes the caches and the memory."""
        return min(self.cpu_ms)

    @property
    def busy_cores(self) -> float:
        """Processor time over wall time: a contender that got less of the machine shows here."""
        shares = (cpu / wall for cpu, wall in zip(self.cpu_ms, self.wall_ms, strict=True))
        return statistics.median(shares)

    def to_dict(self) -> dict[str, float]:
        """The figures without the single rounds."""
        return {
            "median_ms": self.median_ms,
            "best_ms": self.best_ms,
            "median_cpu_ms": self.median_cpu_ms,
            "best_cpu_ms": self.best_cpu_ms,
            "busy_cores": self.busy_cores,
        }


@dataclasses.dataclass(frozen=True)
class OwnClock:
    """A contender in another process, where it takes its time itself.

    Args:
        run: Calls it once; returns the seconds of wall and of processor time.
    """

    run: Callable[[], tuple[float, float]]

    def __call__(self) -> tuple[float, float]:
        return self.run()


def in_turn(
    contenders: Mapping[str, Callable[[], Any]],
    *,
    rounds: int,
    calls: int = 1,
    warm_up: int = 2,
) -> dict[str, Timing]:
    """Time functions without arguments: one after another, round after round.

    Args:
        contenders: Name and function; a function returns when its work is done.
        rounds: Timed rounds of each.
        calls: Calls in one round, for functions that are over too soon for the clock.
        warm_up: Calls before the first round: tracing, compiling, filling caches.

    Returns:
        Name and timing, in the order of the contenders.
    """
    for call in contenders.values():
        for _ in range(warm_up):
            call()
    wall_ms: dict[str, list[float]] = {name: [] for name in contenders}
    cpu_ms: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            wall, cpu = _seconds(call, calls)
            wall_ms[name].append(1000 * wall / calls)
            cpu_ms[name].append(1000 * cpu / calls)
    return {name: Timing(tuple(wall_ms[name]), tuple(cpu_ms[name])) for name in contenders}


def _seconds(call: Callable[[], Any], calls: int) -> tuple[float, float]:
    if isinstance(call, OwnClock):
        walls, cpus = zip(*(call() for _ in range(calls)), strict=True)
        return sum(walls), sum(cpus)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        call()
    return time.perf_counter() - wall, time.process_time() - cpu


def median_ratio(times: Sequence[float], reference: Sequence[float]) -> float:
    """The median of the ratios of each round: neighbours on a machine slow both of a round."""
    return statistics.median(a / b for a, b in zip(times, reference, strict=True))


def table(timings: Mapping[str, Timing], reference: str) -> str:
    """Medians, and their ratios to that of one contender, as text."""
    width = max(map(len, timings))
    first = timings[reference].median_ms
    lines = [
        f"{'':{width}} {'median ms':>10} {'best ms':>9} {'cpu ms':>9} {'busy cores':>11} "
        f"{'/ ' + reference:>10}"
    ]
    lines += [
        f"{name:{width}} {timing.median_ms:10.2f} {timing.best_ms:9.2f} "
        f"{timing.median_cpu_ms:9.2f} {timing.busy_cores:11.2f} {timing.median_ms / first:10.2f}"
        for name, timing in timings.items()
    ]
    return "\n".join(lines)


def write_json(path: str | Path, figures: Mapping[str, Any]) -> None:
    """Write figures to a file: timings become dicts, the rest has to be plain."""
    text = json.dumps(figures, indent=2, default=lambda timing: timing.to_dict())
    Path(path).write_text(text + "\n", encoding="utf-8")


def cpu_seconds() -> float:
    """Processor seconds that this process has used, all threads together."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_mebibytes() -> int:
    """The most memory that this process has held."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one piece of work took of this process.

    Memory is in units of 10^6 bytes, above what the process held before.
    """

    cpu_s: float
    peak_mb: float
    stays_mb: float


def cost_of(work: Callable[[], Any]) -> tuple[Cost, Any]:
    """Does a piece of work and looks at the peak of its memory; needs Linux."""
    _release()
    Path("/proc/self/clear_refs").write_text("5")  # The peak begins anew.
    before, started = memory_mb("VmRSS"), cpu_seconds()
    result = work()
    used, peak = cpu_seconds() - started, memory_mb("VmHWM")
    _release()
    return Cost(used, peak - before, memory_mb("VmRSS") - before), result


def memory_mb(entry: str) -> float:
    """An entry of this process' memory, `VmRSS` or its peak `VmHWM`, in megabytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(rf"{entry}:\s*(\d+)", status)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def _release() -> None:
    """Gives memory back to the system that the allocator keeps, so that it is not used again."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
