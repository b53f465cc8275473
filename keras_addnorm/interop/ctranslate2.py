"""Exports a model to CTranslate2, a fast C++ runtime for Transformers on CPU and GPU."""

from __future__ import annotations

import dataclasses
import operator
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_addnorm import norms, schemes
from keras_addnorm.basics import atomic_folder
from keras_addnorm.basics.optional import require_extra
from keras_addnorm.basics.resources import read_resource
from keras_addnorm.data import BaseTokenizer, TextFormat, TokenizerPair
from keras_addnorm.data.text_format import language_names
from keras_addnorm.interop.folders import never_generated, require_new, write_manifest
from keras_addnorm.layers import AddNorm
from keras_addnorm.layers.attention_config import AttentionConfig
from keras_addnorm.layers.positions import is_learned
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer, merge_lora
from keras_addnorm.models.checks import require_finite, require_vocabularies
from keras_addnorm.models.seq2seq import require_model

# CTranslate2 reads positions from a table, and ours have no end. It cuts sources at 1024 tokens
# itself, unless told otherwise.
_NUM_SINUSOIDAL_POSITIONS = 2048  # at least

# Finite in half precision as well, and a probability of zero in every precision.
_IMPOSSIBLE_LOGIT = -1e4

_PIECES = """\
pieces = [tokenizers.source.pieces[i].text for i in tokenizers.source.encode("a text")]"""
# With language tokens, or without an end token: all that stands around a text is given.
_FORMATTED_PIECES = """\
around = tokenizers.bound_format
row = around.source_row(tokenizers.source.encode("a text"))
pieces = [tokenizers.source.pieces[i].text for i in row]"""
_PREFIX = """
    target_prefix=[[tokenizers.target.pieces[i].text for i in around.target_prefix]],"""


@dataclasses.dataclass(frozen=True)
class _Placement:
    """Where CTranslate2 has the norms of a scheme.

    Attributes:
        options: Arguments of its encoder and decoder specifications.
        norms: For each norm slot of ours and each sublayer, the norm in a layer of theirs.
    """

    options: Mapping[str, bool]
    norms: Mapping[str, Mapping[str, str]]


_ONE_NORM = {
    "self_attention": "self_attention.layer_norm",
    "cross_attention": "attention.layer_norm",
    "feed_forward": "ffn.layer_norm",
}
_POST = _Placement({"pre_norm": False}, {"post_norm": _ONE_NORM})
_PRE = _Placement({"pre_norm": True}, {"pre_norm": _ONE_NORM})
_SANDWICH = _Placement(
    {"pre_norm": True, "pre_post_layer_norm": True},
    {
        "pre_norm": {
            "self_attention": "input_layer_norm",
            "cross_attention": "external_pre_encoder_attention_layer_norm",
            "feed_forward": "pre_feedforward_layer_norm",
        },
        "branch_norm": {
            "self_attention": "post_attention_layer_norm",
            "cross_attention": "external_post_encoder_attention_layer_norm",
            "feed_forward": "post_feedforward_layer_norm",
        },
    },
)

# Factors on the branch and on the skip go into the sublayer's last projection.
_PLACEMENTS: Mapping[type[schemes.ResidualScheme], _Placement] = {
    schemes.PostLN: _POST,
    schemes.DSInit: _POST,
    schemes.DeepNorm: _POST,
    schemes.PreLN: _PRE,
    schemes.LayerScale: _PRE,
    schemes.SandwichLN: _SANDWICH,
}
_NORMS = ("layer_norm", "rms_norm")
_POSITIONS = ("sinusoidal", "learned")
# Name in CTranslate2's enumeration, and whether it acts on a gate.
_ACTIVATIONS = {
    "relu": ("RELU", False),
    "gelu": ("GELU", False),
    "gelu_tanh": ("GELUTanh", False),
    "gelu_sigmoid": ("GELUSigmoid", False),
    "silu": ("SWISH", False),
    "swish": ("SWISH", False),
    "tanh": ("Tanh", False),
    "sigmoid": ("Sigmoid", False),
    "glu": ("Sigmoid", True),
    "reglu": ("RELU", True),
    "geglu": ("GELU", True),
    "geglu_tanh": ("GELUTanh", True),
    "swiglu": ("SWISH", True),
}
_SIZES = {
    *("source_vocabulary_size", "target_vocabulary_size", "num_encoder_layers"),
    *("num_decoder_layers", "hidden_dim", "intermediate_dim", "num_heads", "head_dim"),
    "max_length",
}
_ONLY_IN_TRAINING = {
    *("dropout", "attention_dropout", "activation_dropout", "drop_path"),
    *("kernel_initializer", "bias_initializer"),
}
_SAID_ELSEWHERE = {
    *("activation", "attention", "scheme", "norm", "epsilon", "positions", "use_bias"),
}
_TABLES = {
    *("tie_embeddings", "share_embeddings", "logits_bias", "embedding_scale", "embedding_norm"),
    "start_embedding",
}
_SPECIAL_IDS = {"pad_id", "start_id", "end_id"}  # It knows their names; padding it has not.
# A field that is not among these has to be at its default: then it changes nothing.
_KNOWN_FIELDS = _SIZES | _ONLY_IN_TRAINING | _SAID_ELSEWHERE | _TABLES | _SPECIAL_IDS


def export_ctranslate2(
    model: Seq2SeqTransformer,
    tokenizer: BaseTokenizer | TokenizerPair,
    directory: str | os.PathLike[str],
) -> Path:
    """Writes a model with its vocabularies in CTranslate2's format.

    In float32 its tokens are those of `model.generate(..., length_penalty=0.0)` and its scores
    equal to 1e-3, greedy and with a beam, with these options of `Translator.translate_batch`:

    - `max_decoding_length=max_length` and `min_decoding_length=0`: its default forbids an empty
      output, which changes the first token's probabilities.
    - `length_penalty=0`. It divides scores by `n^length_penalty`; GNMT's `((5 + n) / 6)^alpha`
      cannot be said, and its default is 1. (That is the average of the log-probabilities, over the
      end token, too, with `return_end_token=True`.) With any other penalty it stops when
      `num_beams` hypotheses have ended, as `Beam(num_beams, early_stopping=True)` does, and only
      with 0 when nothing better can come.

    What is never generated (padding; the start token unless it is the end, too; ids that have no
    piece) is switched off in its logits, ours after the softmax: its probabilities are higher by
    the share of these ids, which is next to nothing in a trained model.

    CTranslate2 has no scheme without norms. LayerScale's factors, and DeepNorm's factor on the
    skip, are folded into the sublayers' last projections. DeepNorm's epsilon is then exact in the
    decoder; in the encoder it is of the same order (a relative change below 1e-6 of the output).

    Args:
        model: The model, on any backend of Keras.
        tokenizer: Its tokenizers, or the one for both languages.
        directory: The folder to make: `model.bin`, `config.json`, the vocabularies, the tokenizers
            and a `README.md`. It appears whole or not at all.

    Returns:
        The folder.

    Raises:
        ImportError: If CTranslate2 is not installed.
        TypeError: If `model` or `tokenizer` is something else.
        ValueError: If CTranslate2 cannot say the model's scheme, norm, positions, activation or
            another field, the tokenizer does not belong to the model, or a weight is not finite.
        FileExistsError: If `directory` exists.

    Example:
        ```python
        import tempfile
        from pathlib import Path

        from keras_addnorm.data import Tokenizer
        from keras_addnorm.interop import export_ctranslate2
        from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

        tokenizer = Tokenizer.train(["a small house", "a small mouse"], vocabulary_size=14)
        config = Seq2SeqConfig.preset(
            "micro", source_vocabulary_size=14, target_vocabulary_size=14, max_length=8
        )
        directory = Path(tempfile.mkdtemp()) / "model"
        export_ctranslate2(Seq2SeqTransformer(config), tokenizer, directory)
        assert (directory / "model.bin").is_file()
        ```
    """
    (ctranslate2,) = require_extra("ctranslate2", "An export for CTranslate2", "ctranslate2")
    require_finite(require_model(model))
    tokenizers = TokenizerPair.of(tokenizer)
    _check_config(model.config)
    require_vocabularies(model.config, tokenizers)
    directory = require_new(directory)

    never = never_generated(model.config, tokenizers)
    spec = _specification(ctranslate2.specs, merge_lora(model), never)
    spec.register_source_vocabulary([piece.text for piece in tokenizers.source.pieces])
    spec.register_target_vocabulary([piece.text for piece in tokenizers.target.pieces])
    special = tokenizers.target.pieces
    start = special[model.config.start_id].text
    spec.config.bos_token = spec.config.decoder_start_token = start
    spec.config.eos_token = special[model.config.end_id].text
    spec.config.unk_token = special[tokenizers.target.unknown_id].text
    # Else rows are given whole.
    spec.config.add_source_eos = tokenizers.text_format == TextFormat()
    spec.validate()
    spec.optimize()

    with atomic_folder(directory) as folder:
        spec.save(str(folder))
        tokenizers.save(folder)
        readme = _readme(tokenizers, directory.name, model.config.max_length)
        (folder / "README.md").write_text(readme, encoding="utf-8")
        write_manifest(folder)
    return directory


def _readme(tokenizers: TokenizerPair, name: str, max_length: int) -> str:
    text_format = tokenizers.text_format
    is_plain = text_format == TextFormat()
    languages = [
        f"{side}={next(iter(language_names(text_format, tokenizers.source, side)), '...')!r}"
        for side in text_format.languages
    ]
    return read_resource(__package__, "templates", "ctranslate2.md").format(
        name=name,
        max_length=max_length,
        languages=f".with_languages({', '.join(languages)})" if languages else "",
        pieces=_PIECES if is_plain else _FORMATTED_PIECES,
        prefix=_PREFIX if text_format.target_prefix else "",
    )


def _check_config(config: Seq2SeqConfig) -> None:
    """Refuse what the format has no word for, all of it at once."""
    if complaints := [*_complaints(config)]:
        raise ValueError(
            f"{' '.join(complaints)} Use keras_addnorm.serving.export_saved_model, which exports "
            "every model."
        )


def _complaints(config: Seq2SeqConfig) -> Iterator[str]:
    known = [scheme.__name__ for scheme in _PLACEMENTS]
    yield from _unless("scheme", type(schemes.get(config.scheme)).__name__, known)
    for side in ("encoder", "decoder"):
        yield from _unless(f"norm in the {side}", _norm(config, side), _NORMS)
        if config.embedding_norm is not None:
            # All norms of a model are of one kind.
            embedding_norm = _by_name(norms.for_side(config.embedding_norm, side))
            yield from _unless(
                f"embedding_norm in the {side}", embedding_norm, [_norm(config, side)]
            )
    kind = config.positions["name"] if isinstance(config.positions, dict) else config.positions
    yield from _unless("positions", kind, _POSITIONS)
    yield from _unless("activation", config.activation, _ACTIVATIONS)
    attention = AttentionConfig.get(config.attention)
    yield from _unless("attention", attention, [AttentionConfig()])
    for field in dataclasses.fields(config):
        if field.name not in _KNOWN_FIELDS and field.default is not dataclasses.MISSING:
            yield from _unless(field.name, getattr(config, field.name), [field.default])


def _norm(config: Seq2SeqConfig, side: norms.Side) -> norms.NormLike:
    """The norm of a side, by its name alone if it has no fields."""
    return _by_name(norms.for_side(config.norm, side))


def _by_name(identifier: norms.NormLike) -> norms.NormLike:
    if isinstance(identifier, dict) and identifier.keys() == {"name"}:
        return str(identifier["name"])
    return identifier


def _unless(name: str, received: Any, expected: Iterable[Any]) -> Iterator[str]:
    expected = list(expected)
    if received not in expected:
        yield (
            f"The format of CTranslate2 cannot say this model's {name}. Expected "
            f"{' or '.join(map(repr, expected))}. Received: {received!r}."
        )


def _specification(specs: Any, model: Seq2SeqTransformer, never: list[int]) -> Any:
    config = model.config
    placement = _PLACEMENTS[type(schemes.get(config.scheme))]
    activation, is_gated = _ACTIVATIONS[config.activation]
    options = {
        "num_heads": config.num_heads,
        "head_dim": config.head_dim,
        "layernorm_embedding": config.embedding_norm is not None,
        "activation": getattr(specs.Activation, activation),
        "ffn_glu": is_gated,
        **placement.options,
    }
    # Only a specification with Pre-LN has a final norm; which of the two it is, is said below.
    has_final_norm = model.decoder.final_norm is not None
    options["pre_norm"] |= has_final_norm
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(
            config.num_encoder_layers,
            rms_norm=_norm(config, "encoder") == "rms_norm",
            **options,
        ),
        specs.TransformerDecoderSpec(
            config.num_decoder_layers,
            rms_norm=_norm(config, "decoder") == "rms_norm",
            # The norms around the attention to the encoder; without a sandwich there are none.
            external_pre_post_encoder_layers="pre_post_layer_norm" in options,
            **options,
        ),
    )
    spec.encoder.pre_norm = spec.decoder.pre_norm = placement.options["pre_norm"]
    _fill_stack(spec.encoder, model.encoder, placement)
    _fill_stack(spec.decoder, model.decoder, placement)
    _fill_embeddings(spec.encoder, spec.encoder.embeddings[0], model.encoder_embedding)
    _fill_embeddings(spec.decoder, spec.decoder.embeddings, model.decoder_embedding)
    _fill_vocabulary_projection(spec.decoder.projection, model, never)
    # LN(alpha x + f) with an epsilon is LN(x + f / alpha) with epsilon / alpha^2.
    add_norm = model.decoder.layers[0].feed_forward_add_norm
    spec.config.layer_norm_epsilon = config.epsilon / _skip_gain(add_norm) ** 2
    return spec


def _fill_stack(spec: Any, stack: Any, placement: _Placement) -> None:
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        _fill_attention(layer_spec.self_attention, layer, "self_attention")
        if hasattr(layer_spec, "attention"):
            _fill_attention(layer_spec.attention, layer, "cross_attention")
        _fill_feed_forward(layer_spec.ffn, layer)
        for slot, places in placement.norms.items():
            for sublayer, place in places.items():
                add_norm = getattr(layer, f"{sublayer}_add_norm", None)
                if add_norm is not None:
                    _fill_norm(operator.attrgetter(place)(layer_spec), getattr(add_norm, slot))
    if stack.final_norm is not None:
        _fill_norm(spec.layer_norm, stack.final_norm)


def _fill_attention(spec: Any, layer: Any, name: str) -> None:
    attention = getattr(layer, name)
    query, key, value = (
        getattr(attention, f"{part}_projection") for part in ("query", "key", "value")
    )
    if len(spec.linear) == 2:
        _fill_linear(spec.linear[0], query, key, value)
    else:
        _fill_linear(spec.linear[0], query)
        _fill_linear(spec.linear[1], key, value)
    factor = _branch_factor(getattr(layer, f"{name}_add_norm"))
    _fill_linear(spec.linear[-1], attention.output_projection, factor=factor)


def _fill_feed_forward(spec: Any, layer: Any) -> None:
    feed_forward = layer.feed_forward
    if hasattr(spec, "linear_0_noact"):
        _fill_linear(spec.linear_0, feed_forward.gate_projection)
        _fill_linear(spec.linear_0_noact, feed_forward.intermediate_projection)
    else:
        _fill_linear(spec.linear_0, feed_forward.intermediate_projection)
    factor = _branch_factor(layer.feed_forward_add_norm)
    _fill_linear(spec.linear_1, feed_forward.output_projection, factor=factor)


def _fill_linear(spec: Any, *projections: Any, factor: np.ndarray | float = 1.0) -> None:
    # Side by side as one product; CTranslate2 keeps the outputs on the first axis.
    kernel = np.concatenate([_array(projection.kernel) for projection in projections], axis=1)
    spec.weight = np.ascontiguousarray((kernel * factor).T, "float32")
    if projections[0].use_bias:
        bias = np.concatenate([_array(projection.bias) for projection in projections])
        spec.bias = (bias * factor).astype("float32")


def _fill_norm(spec: Any, norm: keras.layers.Layer) -> None:
    gain, *offset = norm.weights
    spec.gamma = _array(gain)
    if offset:
        spec.beta = _array(offset[0])


def _fill_embeddings(stack_spec: Any, spec: Any, embedding: Any) -> None:
    spec.weight = _array(embedding.embeddings)
    if embedding.zero_id is not None:
        spec.weight = spec.weight.copy()
        spec.weight[embedding.zero_id] = 0
    length = embedding.max_length
    if not is_learned(embedding.positions):
        length = max(length, _NUM_SINUSOIDAL_POSITIONS)
    positions = np.arange(length, dtype="int32")
    stack_spec.position_encodings.encodings = _array(embedding.position_encoding(positions))
    stack_spec.scale_embeddings = True if embedding.scale is None else float(embedding.scale)
    if embedding.embedding_norm is not None:
        _fill_norm(stack_spec.layernorm_embedding, embedding.embedding_norm)


def _fill_vocabulary_projection(spec: Any, model: Seq2SeqTransformer, never: list[int]) -> None:
    projection = model.vocabulary_projection
    bias = np.zeros((model.config.target_vocabulary_size,), "float32")
    if projection is None:
        spec.weight = _array(model.decoder_embedding.embeddings)
        if model.decoder_embedding.logits_bias is not None:
            bias += _array(model.decoder_embedding.logits_bias)
    else:
        _fill_linear(spec, projection)
        if projection.use_bias:
            bias += spec.bias
    bias[never] = _IMPOSSIBLE_LOGIT
    spec.bias = bias


def _branch_factor(add_norm: AddNorm) -> np.ndarray | float:
    scale = 1.0 if add_norm.branch_scale is None else _array(add_norm.branch_scale)
    return scale / _skip_gain(add_norm)


def _skip_gain(add_norm: AddNorm) -> float:
    return add_norm.scheme.plan(add_norm.position).skip_gain


def _array(tensor: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(tensor), "float32")
