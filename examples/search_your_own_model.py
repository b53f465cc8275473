"""Beam search over a model that is not made of our layers: a GRU with attention, in plain Keras.

It reads a number and writes its digits backwards. A search asks three methods of it, `encode`,
`initial_cache` and `decode_step`, and brings all the rest: beams, n-best, length penalties,
constraints, one compiled loop.

python examples/search_your_own_model.py            # 26 s of processor time
python examples/search_your_own_model.py --smoke    # only tries that it runs

Measured with Python 3.11 on two cores that were busy with other work: 52,429 parameters; after
three epochs greedy search writes 82.4 % of 500 other numbers right, the beam 82.2 %. After eight
epochs both write 99.8 %.
"""

import argparse
import dataclasses

import keras
import numpy as np
from keras import ops

from keras_addnorm.decoding import AveragePenalty, Beam, NoRepeatNgram, generate

PAD, START, END, FIRST_DIGIT = 0, 1, 2, 3
VOCABULARY_SIZE = FIRST_DIGIT + 10
LONGEST = 8


class GRUTranslator(keras.Model):
    """A recurrent encoder and decoder, and attention from one to the other (Luong et al., 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = keras.layers.Embedding(VOCABULARY_SIZE, width)
        self.encoder = keras.layers.GRU(width, return_sequences=True, return_state=True)
        self.decoder = keras.layers.GRU(width, return_sequences=True)
        self.logits = keras.layers.Dense(VOCABULARY_SIZE)

    def call(self, inputs):
        """The whole target at once, for training: `(B, T, V)`."""
        memory, mask = self.encode(inputs["source"])
        h = self.decoder(self.embedding(inputs["target"]), initial_state=memory["state"])
        return self._attend(h, memory["outputs"], mask)

    def encode(self, source_ids):
        """Read the sources, once. A memory may be any structure of tensors."""
        mask = ops.not_equal(source_ids, PAD)
        outputs, state = self.encoder(self.embedding(source_ids), mask=mask)
        return {"outputs": outputs, "state": state}, mask

    def initial_cache(self, memory, batch_size, max_length):
        """What the first step reads. The memory comes with a row for each hypothesis."""
        return memory

    def decode_step(self, token_ids, cache, index, memory_padding_mask):
        """One position: the next state takes the place of the last one."""
        h, _ = self.decoder.cell(self.embedding(token_ids), [cache["state"]])
        logits = self._attend(h[:, None], cache["outputs"], memory_padding_mask)
        return logits[:, 0], {**cache, "state": h}

    def _attend(self, h, outputs, mask):
        scores = ops.where(mask[:, None], ops.einsum("btd,bsd->bts", h, outputs), -1e9)
        context = ops.einsum("bts,bsd->btd", ops.softmax(scores), outputs)
        return self.logits(ops.concatenate([h, context], axis=-1))


def encode(numbers: list[str]) -> np.ndarray:
    """The digits of each number and an end, padded: `(B, LONGEST + 1)`."""
    rows = np.full((len(numbers), LONGEST + 1), PAD, "int32")
    for row, number in zip(rows, numbers, strict=True):
        row[: len(number) + 1] = [*(FIRST_DIGIT + int(digit) for digit in number), END]
    return rows


def text_of(ids: np.ndarray) -> str:
    """The digits of one row; special ids are left out."""
    return "".join(str(i - FIRST_DIGIT) for i in ids if i >= FIRST_DIGIT)


def make_numbers(count: int, rng: np.random.Generator) -> list[str]:
    """Numbers of 3 to `LONGEST` digits, each once."""
    numbers: set[str] = set()
    while len(numbers) < count:
        digits = rng.integers(0, 10, rng.integers(3, LONGEST + 1))
        numbers.add("".join(map(str, digits)))
    return rng.permutation(sorted(numbers)).tolist()


@dataclasses.dataclass(frozen=True)
class Result:
    model: GRUTranslator
    exact_match: dict[str, float]
    n_best: list[tuple[str, float]]
    no_digit_twice: list[str]


def main(smoke: bool = False) -> Result:
    keras.utils.set_random_seed(1)
    numbers = make_numbers(200 if smoke else 5000, np.random.default_rng(1))
    held_out, train = numbers[: len(numbers) // 10], numbers[len(numbers) // 10 :]
    source, labels = encode(train), encode([number[::-1] for number in train])
    target = np.hstack([np.full_like(labels[:, :1], START), labels[:, :-1]])

    model = GRUTranslator(16 if smoke else 64)
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=PAD),
        jit_compile=False,
    )
    model.fit(
        {"source": source, "target": target},
        labels,
        batch_size=64,
        epochs=1 if smoke else 3,
        verbose=2,
    )
    print(f"{model.count_params():,} parameters")

    # Outputs have their end, too.
    options = {"max_length": LONGEST + 1, "jit_compile": not smoke}
    beam = Beam(4, length_penalty=AveragePenalty())
    exact_match = {}
    for name, strategy in {"greedy": "greedy", "beam of 4": beam}.items():
        ids, _ = generate(model, encode(held_out), strategy, **options)
        found = [text_of(row) for row in ids]
        is_right = [text == number[::-1] for text, number in zip(found, held_out, strict=True)]
        exact_match[name] = float(np.mean(is_right))
        print(f"{name}: {100 * exact_match[name]:.1f} % of {len(held_out)} numbers are right")

    example = encode(held_out[:1])
    ids, scores = generate(model, example, dataclasses.replace(beam, num_return=4), **options)
    n_best = [(text_of(row), float(score)) for row, score in zip(ids[0], scores[0], strict=True)]
    print(f"\nthe four best for {held_out[0]}, with the mean log-probability of a token:")
    for text, score in n_best:
        print(f"{score:8.3f}  {text}")

    ids, _ = generate(model, encode(held_out[:5]), beam, constraints=[NoRepeatNgram(1)], **options)
    no_digit_twice = [text_of(row) for row in ids]
    print("\nno digit twice, a rule of the search:")
    for number, text in zip(held_out, no_digit_twice, strict=False):
        print(f"{number:>{LONGEST}}  {text}")
    return Result(model, exact_match, n_best, no_digit_twice)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="only try that it runs")
    main(parser.parse_args().smoke)
