"""What base and big need on 1 to 1,000 accelerators, computed and not measured.

python benchmarks/scaling_on_paper.py                       # the tables of docs/scaling.md
python benchmarks/scaling_on_paper.py --vocabulary-size 8000 --utilisation 0.3

The formulas and where they come from are in docs/scaling.md. Standard library only.
"""

import argparse
from dataclasses import dataclass


@dataclass(frozen=True)
class Accelerator:
    """Data-sheet figures of one chip: FLOP/s in bfloat16, bytes, bytes a second."""

    name: str
    peak: float
    memory: float
    near: float  # to each of its `near_devices` neighbours together, one direction
    near_devices: int
    far: float  # beyond them


ACCELERATORS = (
    Accelerator("H100 SXM", 989e12, 80e9, 450e9, 8, 50e9),
    Accelerator("TPU v5e", 197e12, 16e9, 200e9, 256, 3.1e9),
)


@dataclass(frozen=True)
class Model:
    """The shape of a preset with one embedding table for both languages and the output."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int

    def weights(self, vocabulary: int) -> int:
        """Matrices only: biases and norms are less than 1 %."""
        d, f = self.hidden, self.intermediate
        return self.layers * (12 * d * d + 4 * d * f) + vocabulary * d

    def flops(self, vocabulary: int, length: int) -> float:
        """Of a training step, for each pair of a source and a target token."""
        attention = 36 * length * self.hidden * self.layers
        return 6 * self.weights(vocabulary) + attention

    def activations(self, vocabulary: int, length: int) -> float:
        """Bytes kept for the backward pass, bfloat16, for each pair of tokens."""
        encoder = 34 * self.hidden + 5 * self.heads * length
        decoder = encoder + 13 * self.hidden + 5 * self.heads * length
        return self.layers * (encoder + decoder) + 8 * vocabulary


MODELS = (Model("base", 6, 512, 2048, 8), Model("big", 6, 1024, 4096, 16))


def all_reduce_seconds(chip: Accelerator, devices: int, size: float) -> float:
    """A ring, inside a group of neighbours and then between the groups."""
    inside = min(devices, chip.near_devices)
    groups = -(-devices // inside)
    seconds = 2 * (inside - 1) / inside * size / chip.near
    # Between groups each device sends its 1 / inside of the sum.
    return seconds + 2 * (groups - 1) / groups * size / inside / chip.far


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary-size", type=int, default=32_000)
    parser.add_argument("--length", type=int, default=64, help="tokens of a sentence")
    parser.add_argument("--utilisation", type=float, default=0.4, help="share of the peak reached")
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens a device, a step")
    options = parser.parse_args()
    vocabulary, length = options.vocabulary_size, options.length

    print("| model | weights | FLOP a token | gradients | weights, gradients, Adam | activations |")
    print("|---|---|---|---|---|---|")
    for model in MODELS:
        n = model.weights(vocabulary)
        kept = model.activations(vocabulary, length) * options.tokens
        print(
            f"| {model.name} | {n / 1e6:.1f} M | {model.flops(vocabulary, length) / 1e6:,.0f} M "
            f"| {4 * n / 1e6:,.0f} MB | {16 * n / 1e9:.2f} GB | {kept / 1e9:.1f} GB |"
        )
    print()
    print("| chip | model | devices | compute | all-reduce | tokens/s | of linear | an update |")
    print("|---|---|---|---|---|---|---|---|")
    for chip in ACCELERATORS:
        for model in MODELS:
            compute = (
                options.tokens * model.flops(vocabulary, length) / (chip.peak * options.utilisation)
            )
            for devices in (1, 8, 64, 256, 1000):
                reduce = all_reduce_seconds(chip, devices, 4 * model.weights(vocabulary))
                step = compute + reduce
                print(
                    f"| {chip.name} | {model.name} | {devices:,} | {1e3 * compute:.1f} ms "
                    f"| {1e3 * reduce:.1f} ms | {devices * options.tokens / step / 1e6:,.2f} M "
                    f"| {compute / step:.0%} | {devices * options.tokens:,} |"
                )


if __name__ == "__main__":
    main()
