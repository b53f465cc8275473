"""How time and memory grow with batch, length, depth, vocabulary and beam.

Each axis is walked in factors of two to eight from a small model, whose other sizes stay. Time is
processor time, the smallest of the rounds; memory is what XLA plans for the program: arguments,
results, and the most in between. The exponent is that of the last step, log(ratio) / log(factor):
what a size costs where it is largest. Beside it stands what theory allows: attention goes with the
square of the length, everything else with the size itself. An exponent above that is marked (of
time only well above: machines are noisy, and arrays outgrow a cache on the way). Of a training
step, the operations of the program are counted, too. What is counted knows no noise: where it
grows faster than theory says, the script ends with an error.

Runs on JAX, whose programs tell their memory before they run. About eight minutes of one core, half
of them compiling 48 + 48 layers.

    python benchmarks/growth.py --plot docs/images/growth.png --json growth.json
    python benchmarks/growth.py --axes length beam
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"

import jax_programs
import keras
import measure
import peers

_INK, _COLORS = "#333f4b", ("#9aa5b1", "#1f5fa8")
_NOISE = {"time": 0.3, "counted": 0.02}


@dataclasses.dataclass(frozen=True)
class Point:
    """All sizes of one program."""

    batch: int = 4
    length: int = 32
    depth: int = 1
    vocabulary: int = 1000
    beam: int = 1

    @property
    def size(self) -> peers.Size:
        return peers.Size(self.depth, 32, 64, 2, self.vocabulary)


def training(point: Point) -> jax_programs.Program:
    model = peers.compiled(peers.OURS, point.size, max_length=point.length)
    batch = peers.random_batch(point.size, point.batch, point.length)
    return jax_programs.training_step(model, batch)


def decoding(point: Point) -> jax_programs.Program:
    model = peers.never_ending(peers.ours(point.size, max_length=point.length))
    source = peers.random_batch(point.size, point.batch, 16)[0]
    return jax_programs.decoding(model, source, num_beams=point.beam, max_length=point.length)


TRAINING, DECODING = "training step", "decoding"
MAKERS: dict[str, Callable[[Point], jax_programs.Program]] = {
    TRAINING: training,
    DECODING: decoding,
}


@dataclasses.dataclass(frozen=True)
class Axis:
    """What grows, and where from.

    Attributes:
        values: The sizes.
        bound: The exponent that theory allows, of time and of memory.
        start: The point that is walked from.
        programs: Which of `MAKERS` it is a size of.
    """

    values: tuple[int, ...]
    bound: float = 1.0
    start: Point = Point()
    programs: tuple[str, ...] = tuple(MAKERS)


AXES = {
    "batch": Axis((4, 16, 64, 256)),
    # Each pair of positions has a weight, kept for the gradients.
    "length": Axis((64, 512, 2048, 4096), 2.0, Point(batch=1)),
    "depth": Axis((1, 3, 12, 48)),
    "vocabulary": Axis((2_000, 8_000, 32_000, 128_000)),
    # K hypotheses read the K caches of their beam at once.
    "beam": Axis((1, 4, 16), 2.0, programs=(DECODING,)),
}
SMOKE = {"length": Axis((8, 16), 2.0, Point(batch=1, vocabulary=50), (DECODING,))}


@dataclasses.dataclass(frozen=True)
class Curve:
    """The figures of one program along one axis."""

    values: tuple[int, ...]
    cpu_ms: tuple[float, ...]
    megabytes: tuple[float, ...]
    operations: tuple[float, ...]
    compile_ms: tuple[float, ...]

    def exponent(self, figures: tuple[float, ...]) -> float:
        """That of the last step."""
        return math.log(figures[-1] / figures[-2]) / math.log(self.values[-1] / self.values[-2])


def walk(name: str, axis: Axis, program: str, rounds: int) -> Curve:
    """Compiles and times a program at each size of an axis."""
    figures = []
    for value in axis.values:
        keras.backend.clear_session()
        made = MAKERS[program](dataclasses.replace(axis.start, **{name: value}))
        timing = measure.in_turn({"": made.run}, rounds=rounds, warm_up=1)[""]
        figures.append((value, timing.best_cpu_ms, made.bytes / 1e6, made.flops, made.compile_ms))
        print(f"{program}, {name} {value}: {timing.best_cpu_ms:.1f} cpu ms", flush=True)
    return Curve(*map(tuple, zip(*figures, strict=True)))


def table(curves: dict[tuple[str, str], Curve], axes: dict[str, Axis]) -> tuple[str, bool]:
    """The table of the measurement log, and whether nothing counted outgrows the theory."""
    lines = [
        "| | from, to | cpu ms | exponent | MB | exponent | operations: exponent "
        "| theory: at most | compiling, cpu s |",
        "|---|---|---|---:|---|---:|---:|---:|---|",
    ]
    is_fine = True
    for (program, name), curve in curves.items():
        bound = axes[name].bound
        time, memory, operations = map(
            curve.exponent, (curve.cpu_ms, curve.megabytes, curve.operations)
        )
        counted = {"memory": memory}
        if program == TRAINING:  # The steps of decoding's loop would count once.
            counted["operations"] = operations
        excess = [what for what, found in counted.items() if found > bound + _NOISE["counted"]]
        is_fine &= not excess
        if time > bound + _NOISE["time"]:
            excess.append("time")
        exceeded = f" **exceeded: {', '.join(excess)}**" if excess else ""
        operations_cell = f"{operations:.2f}" if "operations" in counted else "–"
        lines.append(
            f"| {program}, {name} | {curve.values[0]:,}, {curve.values[-1]:,} "
            f"| {curve.cpu_ms[0]:.1f}, {curve.cpu_ms[-1]:,.0f} | {time:.2f} "
            f"| {curve.megabytes[0]:.1f}, {curve.megabytes[-1]:,.0f} | {memory:.2f} "
            f"| {operations_cell} | {bound:g}{exceeded} "
            f"| {curve.compile_ms[0] / 1000:.1f}, {curve.compile_ms[-1] / 1000:.1f} |"
        )
    return "\n".join(lines), is_fine


def draw(curves: dict[tuple[str, str], Curve], path: Path) -> None:
    """A column an axis, time above memory, in powers on both sides."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for _, name in curves))
    figure = Figure(figsize=(3 * len(names), 5.4), layout="constrained", facecolor="white")
    panels = figure.subplots(2, len(names), squeeze=False, sharex="col", sharey="row")
    for column, name in enumerate(names):
        for color, program in zip(_COLORS, MAKERS, strict=True):
            if (program, name) not in curves:
                continue
            curve = curves[program, name]
            figures = (curve.cpu_ms, curve.megabytes)
            for axes, values in zip(panels[:, column], figures, strict=True):
                label = f"{program}: exponent {curve.exponent(values):.2f}"
                axes.loglog(
                    curve.values, values, color=color, label=label, marker="o", ms=3, lw=1.8
                )
        panels[0, column].set_title(name, loc="left", fontsize=11, fontweight="bold", color=_INK)
        panels[1, column].set_xticks(curve.values, [f"{value:,}" for value in curve.values])
        panels[1, column].minorticks_off()
    for axes, what in zip(panels[:, 0], ("processor ms", "MB"), strict=True):
        axes.set_ylabel(what, color=_INK)
    for axes in panels.flat:
        axes.grid(axis="y", color="#e4e8ec", linewidth=0.8)
        axes.tick_params(colors=_INK, length=0, which="both", labelsize=8)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color("#cbd2d9")
        axes.legend(frameon=False, labelcolor=_INK, fontsize=8, loc="upper left")
    figure.savefig(path, dpi=120)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--rounds", type=int, default=5, help="timed calls at each point")
    parser.add_argument("--smoke", action="store_true", help="one axis of two tiny points")
    parser.add_argument("--plot", type=Path, help="PNG to draw")
    parser.add_argument("--json", help="file to write the figures to")
    arguments = parser.parse_args(argv)
    axes = SMOKE if arguments.smoke else {name: AXES[name] for name in arguments.axes}
    curves = {
        (program, name): walk(name, axis, program, arguments.rounds)
        for name, axis in axes.items()
        for program in axis.programs
    }
    text, is_fine = table(curves, axes)
    print(f"\n{text}")
    if arguments.plot:
        draw(curves, arguments.plot)
    if arguments.json:
        figures = {", ".join(key): dataclasses.asdict(curve) for key, curve in curves.items()}
        measure.write_json(arguments.json, figures)
    if not is_fine:
        raise SystemExit("Something grows faster than theory says.")


if __name__ == "__main__":
    main()
