"""Exports a model to ONNX graphs, for ONNX Runtime and other runtimes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.argument_checks import require_size
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.data import BaseTokenizer, TokenizerPair
from keras_addnorm.interop.folders import never_generated, prepare, write_manifest, write_readme
from keras_addnorm.interop.graphs import Graph, NamedTensor, Sizes, trace, write_card
from keras_addnorm.models import Seq2SeqTransformer

_PACKAGES = ("onnx", "tf2onnx", "tf2onnx.optimizer", "tf2onnx.tf_loader", "tf2onnx.tfonnx")
_OPSET = 18

# Runtimes optimise graphs when they load them. Of tf2onnx's own optimisers, one goes wrong in our
# attention: it merges two reshapes into the second, whose zeros ("as in the input") then mean
# another input. Keras' `model.export(format="onnx")` uses it, and its files fail at the first run.
_OPTIMIZERS = {
    "fold_constants": "ConstFoldOptimizer",
    "merge_duplication": "MergeDuplicatedNodesOptimizer",
    "remove_identity": "IdentityOptimizer",
}

_ABOUT = """\
Three graphs: `teacher_forced.onnx`, `encoder.onnx` and `decoder_step.onnx`. Batch and lengths are
free; only the number of tokens that can be decoded is fixed. Each file holds its own weights."""

_SET_UP = """\
import json
from pathlib import Path

import numpy as np
import onnxruntime


def load(name):
    session = onnxruntime.InferenceSession(f"{folder}/{name}.onnx")
    outputs = [output.name for output in session.get_outputs()]
    return lambda **inputs: dict(zip(outputs, session.run(outputs, inputs), strict=True))


folder = "FOLDER"
encoder, decoder_step = load("encoder"), load("decoder_step")
card = json.loads(Path(folder, "model.json").read_text(encoding="utf-8"))
ids = card["special_ids"]
"""


def export_onnx(
    model: Seq2SeqTransformer,
    directory: str | os.PathLike[str],
    *,
    tokenizer: BaseTokenizer | TokenizerPair | None = None,
    max_length: int | None = None,
) -> Path:
    """Writes a model as three ONNX graphs.

    `encoder.onnx` takes `source` and gives all that `decoder_step.onnx` takes besides the `token`
    and its `index`; the step gives the `logits` of the next token and, with `new_` in front of
    their names, the self-attentions' caches for its next call. `teacher_forced.onnx` takes `source`
    and `target` and gives the `logits` of all positions. Ids are int32. The logits are the model's
    to 1e-4, if something normalises the stream (`norm="none"`: to 1e-3).

    Batch and lengths are free. A step may decode more rows than there are sources, the hypotheses
    of each side by side: repeat the self-attentions' caches, not the cross-attentions'.

    Args:
        model: The model; Keras has to run on TensorFlow.
        directory: The folder to make: the graphs, `model.json` (inputs, outputs, shapes, special
            ids, configuration) and a `README.md` with a greedy search. It appears whole or not at
            all.
        tokenizer: The tokenizers to put beside them, if any.
        max_length: Number of tokens that can be decoded; `None` for `config.max_length`.

    Returns:
        The folder.

    Raises:
        ImportError: If onnx or tf2onnx is not installed.
        TypeError: If `model` or `tokenizer` is something else.
        ValueError: If the model does not compute in float32, has an operation that ONNX cannot
            say, a weight that is not finite, or does not belong to the tokenizer, or if
            `max_length` does not fit.
        RuntimeError: If Keras runs on another backend than TensorFlow.
        FileExistsError: If `directory` exists.

    Example:
        ```python
        import tempfile
        from pathlib import Path

        from keras_addnorm.interop import export_onnx
        from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

        config = Seq2SeqConfig.preset(
            "micro", source_vocabulary_size=14, target_vocabulary_size=14, max_length=8
        )
        directory = Path(tempfile.mkdtemp()) / "model"
        export_onnx(Seq2SeqTransformer(config), directory)
        assert (directory / "decoder_step.onnx").is_file()
        ```
    """
    onnx, tf2onnx, *_ = require_extra("onnx", "An export as ONNX graphs", *_PACKAGES)
    tokenizers, directory = prepare(model, tokenizer, directory)
    length = model.config.max_length if max_length is None else max_length
    require_size(max_length=length)
    sizes = Sizes(length)
    graphs = trace(model, sizes)
    with atomic_folder(directory) as folder:
        files = {graph.name: f"{graph.name}.onnx" for graph in graphs}
        for graph in graphs:
            onnx.save_model(_convert(onnx, tf2onnx, graph), folder / files[graph.name])
        if tokenizers is not None:
            tokenizers.save(folder)
        versions = {"onnx": onnx.__version__, "tf2onnx": tf2onnx.__version__}
        never = never_generated(model.config, tokenizers)
        write_card(folder, "onnx", files, graphs, model, sizes, never, versions)
        write_readme(folder, directory.name, "ONNX Runtime", _ABOUT, _SET_UP)
        write_manifest(folder)
    return directory


def _convert(onnx: Any, tf2onnx: Any, graph: Graph) -> Any:
    import tensorflow as tf

    inputs = {tensor.name: f"{tensor.name}:0" for tensor in graph.inputs}
    # TensorFlow orders the values of a dict by its keys.
    names = sorted(tensor.name for tensor in graph.outputs)
    traced = dict(zip(names, (tensor.name for tensor in graph.function.outputs), strict=True))
    outputs = {tensor.name: traced[tensor.name] for tensor in graph.outputs}
    sides = list(inputs.values()), list(outputs.values())
    frozen = tf2onnx.tf_loader.from_function(graph.function, *sides)
    with tf.Graph().as_default() as tf_graph:
        tf.import_graph_def(frozen, name="")
        converted = tf2onnx.tfonnx.process_tf_graph(
            tf_graph,
            opset=_OPSET,
            input_names=sides[0],
            output_names=sides[1],
            custom_op_handlers={"Erfc": (_complementary_error_function, [])},
            tensors_to_rename={traced: name for name, traced in (inputs | outputs).items()},
        )
    optimizers = {key: getattr(tf2onnx.optimizer, name) for key, name in _OPTIMIZERS.items()}
    converted = tf2onnx.optimizer.optimize_graph(converted, optimizers=optimizers)
    proto = converted.make_model(f"keras_addnorm {graph.name}")
    _name_axes(proto.graph.input, graph.inputs)
    _name_axes(proto.graph.output, graph.outputs)
    try:
        # Operations without a counterpart were copied as they are.
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        raise ArgumentError(
            f"ONNX cannot say this model's graph '{graph.name}'.",
            f"operations of ONNX's opset {_OPSET}",
            "Use keras_addnorm.serving.export_saved_model, which exports every model.",
            received=str(error).splitlines()[0],
        ) from error
    return proto


def _complementary_error_function(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """Say `erfc(x)`, of which Keras makes GELU, as `1 - erf(x)`: tf2onnx does not know it."""
    node.type = "Erf"
    one = graph.make_const(f"{name}_one", np.array(1.0, "float32")).output[0]
    negative = graph.insert_new_node_on_output("Neg", node.output[0], name=f"{name}_negative")
    graph.insert_new_node_on_output(
        "Add", negative.output[0], name=f"{name}_sum", inputs=[negative.output[0], one]
    )


def _name_axes(values: Any, tensors: tuple[NamedTensor, ...]) -> None:
    for value, tensor in zip(values, tensors, strict=True):
        for axis, size in zip(value.type.tensor_type.shape.dim, tensor.shape, strict=True):
            if isinstance(size, str):
                axis.dim_param = size
            else:
                axis.dim_value = size
