"""Sentences a second of the tokeniser inside an exported graph, beside SentencePiece in Python.

python benchmarks/graph_tokenizer.py                                            # the built-in set
python benchmarks/graph_tokenizer.py --text train.en --vocabulary-size 6000     # a file of yours
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import tensorflow as tf

from keras_addnorm.data import Tokenizer, load_translation
from keras_addnorm.data.strings import string_pairs
from keras_addnorm.serving.graph_tokenizer import GraphTokenizer
from keras_addnorm.serving.optimize_graph import optimize_graph


class Segmentation(tf.Module):
    """A tokeniser as exports have it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = GraphTokenizer(tokenizer)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def segment(self, texts: tf.Tensor) -> tf.Tensor:
        """The tokens of all texts in a row."""
        return self._tokenizer.tokenize(texts).flat_values

    def exported(self) -> Any:
        """Itself, saved and loaded."""
        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(self, folder, signatures=self.segment)
            optimize_graph(Path(folder))
            return tf.saved_model.load(folder)


def contenders(tokenizer: Tokenizer, texts: list[str], size: int) -> dict[str, Callable[[], None]]:
    """Segment all texts, a batch at a time."""
    exported = Segmentation(tokenizer).exported()
    starts = range(0, len(texts), size)
    batches = [texts[start : start + size] for start in starts]
    tensors = [tf.constant(batch) for batch in batches]

    def in_graph() -> None:
        for tensor in tensors:
            exported.segment(tensor).numpy()

    def in_python() -> None:
        for batch in batches:
            tokenizer.encode_batch(batch)

    return {"in the graph": in_graph, "SentencePiece": in_python}


def main() -> None:
    """Measure both kinds at two batch sizes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, help="a file of one sentence a line")
    parser.add_argument("--vocabulary-size", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", help="file for the figures")
    arguments = parser.parse_args()
    if arguments.text:
        texts = arguments.text.read_text(encoding="utf-8").splitlines()[:30_000]
    else:
        pairs = string_pairs(load_translation("demo/en-de", split="train[:20000]"))
        texts = [source for source, _ in pairs]
    figures = {}
    for kind in ("unigram", "bpe"):
        tokenizer = Tokenizer.train(texts, vocabulary_size=arguments.vocabulary_size, kind=kind)
        for size, count in ((256, 8192), (1, 512)):
            chosen = texts[:count]
            timings = measure.in_turn(
                contenders(tokenizer, chosen, size), rounds=arguments.rounds, warm_up=1
            )
            print(f"\n{kind}, batches of {size}, {len(chosen)} sentences")
            print(measure.table(timings, "SentencePiece"))
            seconds = timings["in the graph"].median_ms / 1000
            print(f"in the graph: {len(chosen) / seconds:,.0f} sentences/s")
            figures |= {f"{kind} {size} {name}": timing for name, timing in timings.items()}
    if arguments.json:
        measure.write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
