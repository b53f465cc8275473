"""Sentences a second of the tokeniser inside an exported graph, beside SentencePiece in Python.

python benchmarks/graph_tokenizer.py                                            # the built-in set
python benchmarks/graph_tokenizer.py --text train.en --vocabulary-size 6000     # a file of yours
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import measure
import tensorflow as tf

from keras_addnorm.data import Tokenizer, load_translation
from keras_addnorm.data.tokenizer import string_pairs
from keras_addnorm.serving.graph_tokenizer import GraphTokenizer


def contenders(tokenizer: Tokenizer, texts: list[str], size: int) -> dict[str, Callable[[], None]]:
    """Segment all texts, a batch at a time."""
    graph = GraphTokenizer(tokenizer)
    segment = tf.function(
        lambda batch: graph.tokenize(batch).flat_values,
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    starts = range(0, len(texts), size)
    batches = [texts[start : start + size] for start in starts]
    tensors = [tf.constant(batch) for batch in batches]

    def in_graph() -> None:
        for tensor in tensors:
            segment(tensor).numpy()

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
