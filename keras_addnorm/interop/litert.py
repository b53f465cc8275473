"""Exports a model to LiteRT (once TensorFlow Lite), the runtime of phones and small devices."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.argument_checks import require_size
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.data import BaseTokenizer, TokenizerPair
from keras_addnorm.interop.folders import never_generated, prepare, write_manifest, write_readme
from keras_addnorm.interop.graphs import Graph, Sizes, trace, write_card
from keras_addnorm.models import Seq2SeqTransformer

_FILE = "model.tflite"

_ABOUT = """\
`model.tflite` has three signatures, which share their weights: `teacher_forced`, `encoder` and
`decoder_step`. It needs LiteRT's built-in operations only. All sizes are fixed, those in
`model.json`: pad the source with `pad_id` to its length, and the batch with rows of padding."""

_SET_UP = """\
import json
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

folder = "FOLDER"
interpreter = Interpreter(f"{folder}/model.tflite")
encoder = interpreter.get_signature_runner("encoder")
decoder_step = interpreter.get_signature_runner("decoder_step")
card = json.loads(Path(folder, "model.json").read_text(encoding="utf-8"))
ids = card["special_ids"]
"""


def export_litert(
    model: Seq2SeqTransformer,
    directory: str | os.PathLike[str],
    *,
    tokenizer: BaseTokenizer | TokenizerPair | None = None,
    batch_size: int = 1,
    source_length: int | None = None,
    max_length: int | None = None,
) -> Path:
    """Writes a model as one LiteRT file with three signatures.

    The signature `encoder` takes `source` and gives all that `decoder_step` takes besides the
    `token` and its `index`; the step gives the `logits` of the next token and, with `new_` in front
    of their names, the self-attentions' caches for its next call. `teacher_forced` takes `source`
    and `target` and gives the `logits` of all positions. Ids are int32. The logits are the model's
    to 1e-4.

    All operations are LiteRT's own, none of TensorFlow's ("Flex"): the plain interpreter runs
    them on every device. All sizes are fixed, which is what its delegates work best with; padding
    changes no result.

    Args:
        model: The model; Keras has to run on TensorFlow.
        directory: The folder to make: `model.tflite`, `model.json` (inputs, outputs, shapes,
            special ids, configuration) and a `README.md` with a greedy search. It appears whole or
            not at all.
        tokenizer: The tokenizers to put beside them, if any.
        batch_size: Number of sources; a beam's hypotheses are not counted apart.
        source_length: Number of source tokens; `None` for `config.max_length`.
        max_length: Number of tokens that can be decoded, and of the teacher-forced target; `None`
            for `config.max_length`.

    Returns:
        The folder.

    Raises:
        TypeError: If `model` or `tokenizer` is something else.
        ValueError: If the model does not compute in float32, has an operation that LiteRT does
            not have, a weight that is not finite, or does not belong to the tokenizer, or if a size
            does not fit.
        RuntimeError: If Keras runs on another backend than TensorFlow.
        FileExistsError: If `directory` exists.

    Example:
        ```python
        import tempfile
        from pathlib import Path

        from keras_addnorm.interop import export_litert
        from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

        config = Seq2SeqConfig.preset(
            "micro", source_vocabulary_size=14, target_vocabulary_size=14, max_length=8
        )
        directory = Path(tempfile.mkdtemp()) / "model"
        export_litert(Seq2SeqTransformer(config), directory, source_length=6)
        assert (directory / "model.tflite").is_file()
        ```
    """
    tokenizers, directory = prepare(model, tokenizer, directory)
    length = model.config.max_length if max_length is None else max_length
    read = model.config.max_length if source_length is None else source_length
    require_size(batch_size=batch_size, source_length=read, max_length=length)
    sizes = Sizes(
        max_length=length,
        batch=batch_size,
        rows=batch_size,
        source_length=read,
        target_length=length,
    )
    graphs = trace(model, sizes)
    with atomic_folder(directory) as folder:
        (folder / _FILE).write_bytes(_convert(graphs))
        if tokenizers is not None:
            tokenizers.save(folder)
        files = {graph.name: _FILE for graph in graphs}
        versions = {"tensorflow": _version()}
        never = never_generated(model.config, tokenizers)
        write_card(folder, "litert", files, graphs, model, sizes, never, versions)
        write_readme(folder, directory.name, "LiteRT", _ABOUT, _SET_UP)
        write_manifest(folder)
    return directory


def _version() -> str:
    import tensorflow as tf

    return str(tf.__version__)


def _convert(graphs: tuple[Graph, ...]) -> bytes:
    import tensorflow as tf

    # Through a SavedModel, because then the signatures share their weights in the file.
    module = tf.Module()
    module.variables_to_save = [graph.function.variables for graph in graphs]
    signatures = {graph.name: graph.function for graph in graphs}
    with tempfile.TemporaryDirectory() as saved_model:
        tf.saved_model.save(module, saved_model, signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(
            saved_model, signature_keys=list(signatures)
        )
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        try:
            converted: bytes = converter.convert()
        except Exception as error:  # Its class is not public.
            operations = sorted(set(re.findall(r"'tf\.(\w+)' op", str(error))))
            raise ArgumentError(
                "LiteRT cannot say this model.",
                "operations that it has built in",
                "Use keras_addnorm.serving.export_saved_model, which exports every model.",
                received=", ".join(operations) or str(error),
            ) from error
    return converted
