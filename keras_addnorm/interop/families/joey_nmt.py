"""Joey NMT's model folders: a `.ckpt` of PyTorch, `config.yaml` and lists of tokens."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_addnorm import schemes
from keras_addnorm.basics.argument_checks import has_file
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.basics.text import read_text
from keras_addnorm.data import TokenizerPair
from keras_addnorm.decoding.length_penalties import GNMTPenalty
from keras_addnorm.decoding.strategies import Beam
from keras_addnorm.interop.families.bart_like import (
    PositionTable,
    layers,
    linear_rows,
    norm_rows,
    norm_slot,
)
from keras_addnorm.interop.families.family import Checkpoint, ReadOnlyFamily
from keras_addnorm.interop.families.fields import (
    ConfigFile,
    Field,
    Settings,
    copied,
    fixed,
    names,
    number_in,
)
from keras_addnorm.interop.families.generation_settings import GenerationSettings
from keras_addnorm.interop.families.rows import TRANSPOSED, Extra, Row, WeightTable
from keras_addnorm.interop.families.text_files import (
    by_mapping,
    read_pieces,
    read_tokens,
    read_yaml,
    require_object,
)
from keras_addnorm.interop.tensor_files import read_torch, tensors_in
from keras_addnorm.models import Seq2SeqConfig

_SIDES = ("encoder", "decoder")
# The best one, as the training says; then its last one.
_CHECKPOINTS = ("best.ckpt", "latest.ckpt")

_IGNORED = names(
    """
    initializer embed_initializer bias_initializer init_gain embed_init_gain init_weight
    bias_init_weight embed_init_weight init_rnn_orthogonal lstm_forget_gate
    dropout freeze load_pretrained
    """
)


def _both(
    name: str, defaults: tuple[Any, Any], ours: str, values: Mapping[Any, Any] | None = None
) -> tuple[Field, ...]:
    """Return the fields of both sides, which have to agree."""
    return tuple(
        Field(f"{side}.{name}", default, (ours,), values)
        for side, default in zip(_SIDES, defaults, strict=True)
    )


_CONFIG_FILE = ConfigFile(
    "Joey NMT",
    (
        Field("encoder.type", "recurrent", (), {"transformer": "transformer"}),
        fixed("decoder.type", "transformer"),
        copied("encoder.num_layers", 8, "num_encoder_layers"),
        copied("decoder.num_layers", 4, "num_decoder_layers"),
        *_both("num_heads", (4, 8), "num_heads"),
        *_both("hidden_size", (512, 512), "hidden_dim"),
        *_both("embeddings.embedding_dim", (64, 64), "hidden_dim"),
        *_both("ff_size", (2048, 2048), "intermediate_dim"),
        *_both(
            "activation",
            ("relu", "relu"),
            "activation",
            {"relu": "relu", "gelu": "gelu", "swish": "silu"},
        ),
        *_both("embeddings.scale", (False, False), "embedding_scale", {True: None, False: 1.0}),
        # An encoder that does not say it has norms before its sublayers, and none behind them.
        Field("encoder.layer_norm", None, (), dict.fromkeys(("pre", "post"))),
        Field("decoder.layer_norm", "post", (), dict.fromkeys(("pre", "post"))),
        *_both("scheme", ("post_ln", "post_ln"), "scheme"),
        copied("tied_embeddings", False, "share_embeddings"),
        copied("tied_softmax", False, "tie_embeddings"),
        # Of other sections, and of the tensors.
        copied("source_vocabulary", 0, "source_vocabulary_size"),
        copied("target_vocabulary", 0, "target_vocabulary_size"),
        copied("pad_id", 1, "pad_id"),
        copied("bos_id", 2, "start_id"),
        copied("eos_id", 3, "end_id"),
        copied("max_output_length", 256, "max_length"),
    ),
    {
        "norm": "layer_norm",
        "epsilon": 1e-6,
        "positions": "sinusoidal",
        "logits_bias": False,
    },
)


@dataclasses.dataclass(frozen=True)
class JoeyNMT(ReadOnlyFamily):
    """A Transformer that Joey NMT 2 wrote.

    Reference:
        Kreutzer et al., "Joey NMT: A Minimalist NMT Toolkit for Novices", 2019.
    """

    read_only = "Joey NMT's models"
    settings_files = ("config.yaml",)

    def open(self, path: Path) -> Checkpoint:
        """Find the settings and the best checkpoint of a folder, or read a given one."""
        folder = path if path.is_dir() else path.parent
        settings = _read_yaml(folder / "config.yaml")
        if path.is_dir():
            path = _checkpoint_in(path)
        tree = read_torch(path)
        if not isinstance(tree, Mapping):
            raise ValueError(
                f"'{path}' is no checkpoint of Joey NMT. Expected a dict with 'model_state'."
            )
        return Checkpoint(path, settings, tensors_in(tree.get("model_state", tree)))

    def config(self, checkpoint: Checkpoint) -> Seq2SeqConfig:
        """Return our config for the settings of the model."""
        settings, tensors = checkpoint.settings, checkpoint.tensors
        tables = ("src_embed.lut.weight", "trg_embed.lut.weight")
        if missing := [name for name in tables if name not in tensors]:
            raise ValueError(
                f"The checkpoint has no tables of tokens. Missing: {', '.join(missing)}. Is it one "
                "of Joey NMT?"
            )
        sizes = [tensors[name].shape[0] for name in tables]
        longest = number_in(_section(settings, "testing"), "max_output_length", -1)
        special = _special_symbols(settings)
        return _CONFIG_FILE.read(
            {
                **_flat(_section(settings, "model")),
                "source_vocabulary": sizes[0],
                "target_vocabulary": sizes[1],
                **{name: special[name] for name in ("pad_id", "bos_id", "eos_id")},
                "max_output_length": longest if longest > 0 else None,
            },
            self.ignored,
        )

    def weights(self, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors."""
        rows = [row for side, index in layers(config) for row in _layer(config, side, index)]
        if schemes.get(config.scheme).needs_final_norm:
            for side in _SIDES:
                rows += norm_rows(config, f"{side}.final_norm", f"{side}.layer_norm")
        extras = [Extra(r"(encoder|decoder)\.pe\.pe", value=PositionTable(config))]
        source, target = "src_embed.lut.weight", "trg_embed.lut.weight"
        head = "decoder.output_layer.weight"
        rows.append(Row(("decoder_embedding.embeddings",), target))
        if config.share_embeddings:
            extras.append(Extra(re.escape(source), same_as=target))
        else:
            rows.append(Row(("encoder_embedding.embeddings",), source))
        if config.tie_embeddings:
            extras.append(Extra(re.escape(head), same_as=target))
        else:
            rows.append(Row(("vocabulary_projection.kernel",), head, (TRANSPOSED,)))
        return WeightTable(tuple(rows), tuple(extras))

    def generation(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> GenerationSettings:
        """Return the search that `testing` asks for."""
        settings = checkpoint.settings
        testing, special = _section(settings, "testing"), _special_symbols(settings)
        may_be_unknown = testing.get("generate_unk", True)
        found = GenerationSettings.of(
            {
                "num_beams": testing.get("beam_size", 1),
                "max_length": config.max_length + 1,
                "no_repeat_ngram_size": max(0, number_in(testing, "no_repeat_ngram_size", -1)),
                "repetition_penalty": max(1.0, number_in(testing, "repetition_penalty", -1)),
                "suppress_tokens": [] if may_be_unknown else [special["unk_id"]],
            },
            config.max_length,
            vocabulary_size=config.target_vocabulary_size,
        )
        alpha = number_in(testing, "beam_alpha", number_in(testing, "alpha", -1))
        if not isinstance(found.strategy, Beam):
            return found
        penalty = GNMTPenalty(float(max(0, alpha)))
        strategy = dataclasses.replace(found.strategy, length_penalty=penalty)
        return dataclasses.replace(found, strategy=strategy)

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair:
        """Read the SentencePiece models and the lists of tokens beside the checkpoint."""
        data = _section(checkpoint.settings, "data")
        special = _special_symbols(checkpoint.settings)
        sizes = (config.source_vocabulary_size, config.target_vocabulary_size)
        problems = [f"lang_tags = {special['lang_tags']}"] if special["lang_tags"] else []
        found = []
        for side, size in zip(("src", "trg"), sizes, strict=True):
            settings = _section(data, side)
            wrong = [f"{side}: {each}" for each in _unread(settings)]
            problems += wrong
            if not wrong:
                files = (Path(settings["tokenizer_cfg"]["model_file"]).name, f"{side}_vocab.txt")
                model, vocabulary = (checkpoint.folder / name for name in files)
                problems += [
                    f"no file '{each}'" for each in (model, vocabulary) if not has_file(each)
                ]
                found.append((model, vocabulary, size))
        tokens: list[list[str]] = []
        if not problems:
            for model, vocabulary, _ in found:
                tokens.append(read_tokens(vocabulary))
                problems += _pieces_left_out(model, tokens[-1])
        if problems:
            raise ArgumentError(
                "The texts of this Joey NMT model are split in a way that is not read here.",
                "SentencePiece with all pieces in the lists of tokens, and nothing done before it",
                "Pass tokenizers=None to load the weights alone, or tokenizers that you have.",
                received="; ".join(problems),
            )
        named = {
            "pad": special["pad_token"],
            "start": special["bos_token"],
            "end": special["eos_token"],
            "unknown": special["unk_token"],
        }
        source, target = (
            by_mapping(model, {name: i for i, name in enumerate(each)}, size, **named)
            for (model, _, size), each in zip(found, tokens, strict=True)
        )
        return TokenizerPair(source, target)


def _read_yaml(path: Path) -> dict[str, Any]:
    if not has_file(path):
        raise FileNotFoundError(
            f"There is no '{path.name}' in '{path.parent}'. Expected the folder that Joey NMT "
            "wrote: config.yaml, a .ckpt and the lists of tokens."
        )
    return read_yaml(path, read_text(path), "A model of Joey NMT")


def _checkpoint_in(folder: Path) -> Path:
    for name in _CHECKPOINTS:
        if has_file(folder / name):
            return folder / name
    found = sorted(folder.glob("*.ckpt"))
    if len(found) != 1:
        raise FileNotFoundError(
            f"Expected {' or '.join(_CHECKPOINTS)}, or one .ckpt file, in '{folder}'. Received: "
            f"{', '.join(each.name for each in found) or 'none'}. Pass the file itself."
        )
    return found[0]


def _section(settings: Settings, name: str) -> Settings:
    return require_object(settings.get(name), f"'{name}' in config.yaml")


def _special_symbols(settings: Settings) -> dict[str, Any]:
    """Return the ids and names of special tokens, with Joey NMT's defaults."""
    given = _section(_section(settings, "data"), "special_symbols")
    found: dict[str, Any] = {"lang_tags": given.get("lang_tags") or []}
    for index, (name, token) in enumerate(
        (("unk", "<unk>"), ("pad", "<pad>"), ("bos", "<s>"), ("eos", "</s>"))
    ):
        found[f"{name}_id"] = given.get(f"{name}_id", index)
        found[f"{name}_token"] = given.get(f"{name}_token", token)
    return found


def _flat(model: Settings) -> dict[str, Any]:
    """Return the settings by the names of the fields, and the schemes that they lead to."""
    found = {name: each for name, each in model.items() if name not in _SIDES}
    for side in _SIDES:
        settings = dict(_section(model, side))
        embeddings = _section(settings, "embeddings")
        settings.pop("embeddings", None)
        if side == "decoder" and model.get("tied_embeddings", False):
            # The encoder's serve both sides, with their scale.
            embeddings = _section(_section(model, "encoder"), "embeddings")
        place, alpha = settings.get("layer_norm", "post"), settings.pop("alpha", 1.0)
        found |= {f"{side}.{name}": each for name, each in settings.items()}
        found |= {f"{side}.embeddings.{name}": each for name, each in embeddings.items()}
        if place == "pre" and alpha != 1.0:
            found[f"{side}.layer_norm and alpha"] = f"pre and {alpha}"
        post = "post_ln" if alpha == 1.0 else {"name": "deep_norm", "alpha": alpha, "beta": 1.0}
        found[f"{side}.scheme"] = "pre_ln" if place == "pre" else post
    return {name: each for name, each in found.items() if name.rpartition(".")[2] not in _IGNORED}


def _layer(config: Seq2SeqConfig, side: str, index: int) -> Iterator[Row]:
    ours, theirs = f"{side}.layers.{index}", f"{side}.layers.{index}"
    attentions = {"self_attention": ("src_src_att", "layer_norm")}
    if side == "decoder":
        attentions = {
            "self_attention": ("trg_trg_att", "x_layer_norm"),
            "cross_attention": ("src_trg_att", "dec_layer_norm"),
        }
    for name, (attention, norm) in attentions.items():
        for part, their_part in (
            ("query", "q_layer"),
            ("key", "k_layer"),
            ("value", "v_layer"),
            ("output", "output_layer"),
        ):
            yield from linear_rows(
                config, f"{ours}.{name}.{part}_projection", f"{theirs}.{attention}.{their_part}"
            )
        slot = f"{ours}.{name}_add_norm.{norm_slot(config)}"
        yield from norm_rows(config, slot, f"{theirs}.{norm}")
    for part, number in (("intermediate", 0), ("output", 3)):
        yield from linear_rows(
            config,
            f"{ours}.feed_forward.{part}_projection",
            f"{theirs}.feed_forward.pwff_layer.{number}",
        )
    slot = f"{ours}.feed_forward_add_norm.{norm_slot(config)}"
    yield from norm_rows(config, slot, f"{theirs}.feed_forward.layer_norm")


def _unread(settings: Settings) -> list[str]:
    """Return what is done to the texts of a side that our tokenizers do not do."""
    pieces = _section(settings, "tokenizer_cfg")
    done = {
        "level": (settings.get("level", "word"), "bpe"),
        "tokenizer_type": (settings.get("tokenizer_type"), "sentencepiece"),
        "lowercase": (settings.get("lowercase", False), False),
        "normalize": (settings.get("normalize", False), False),
        "pretokenizer": (str(pieces.get("pretokenizer", "none")).lower(), "none"),
        "model_file": (_is_given(pieces.get("model_file")), "given"),
    }
    return [f"{name} = {value!r}" for name, (value, expected) in done.items() if value != expected]


def _is_given(file: Any) -> str:
    return "given" if isinstance(file, str) and Path(file).name else "missing"


def _pieces_left_out(model: Path, tokens: list[str]) -> list[str]:
    """Return a problem if the list of tokens lacks pieces: Joey NMT then splits without them."""
    known = {*tokens, "<s>", "</s>", "<unk>", "<pad>"}
    lacking = [piece for piece in read_pieces(model) if len(piece) > 1 and piece not in known]
    if not lacking:
        return []
    return [f"{len(lacking)} pieces of '{model.name}' without an id, such as {lacking[0]!r}"]
