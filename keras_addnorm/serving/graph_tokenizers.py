"""Which class does in a graph what a tokenizer does in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import BaseTokenizer, ByteLevelBPETokenizer, ByteTokenizer, Tokenizer
from keras_addnorm.serving.graph_byte_level_bpe import GraphByteLevelBPETokenizer
from keras_addnorm.serving.graph_bytes import GraphByteTokenizer
from keras_addnorm.serving.graph_tokenizer import GraphTokenizer
from keras_addnorm.serving.graph_vocabulary import GraphVocabulary

_CLASSES: dict[type[BaseTokenizer], Callable[[Any], GraphVocabulary]] = {
    Tokenizer: GraphTokenizer,
    ByteTokenizer: GraphByteTokenizer,
    ByteLevelBPETokenizer: GraphByteLevelBPETokenizer,
}


def graph_tokenizer_of(tokenizer: BaseTokenizer) -> GraphVocabulary:
    """Makes the tokenizer of a graph.

    Args:
        tokenizer: The tokenizer in Python.

    Returns:
        One with the same results.

    Raises:
        ValueError: If there is none of its kind.
    """
    if type(tokenizer) not in _CLASSES:
        raise ArgumentError(
            "An export splits texts with TensorFlow's own operations, and does not know this kind "
            "of tokenizer.",
            f"one of {[kind.__name__ for kind in _CLASSES]}",
            "Translate in Python, or export the model without its tokenizer (export_onnx, "
            "export_litert).",
            received=f"a {type(tokenizer).__name__}",
        )
    return _CLASSES[type(tokenizer)](tokenizer)
