"""fairseq's `transformer_*` models: a `.pt` file with the options of the training in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_addnorm.data import TokenizerPair
from keras_addnorm.decoding import AveragePenalty, Beam, MinLength
from keras_addnorm.interop.families import bart_like
from keras_addnorm.interop.families.fairseq_options import IGNORED
from keras_addnorm.interop.families.family import Checkpoint, Family
from keras_addnorm.interop.families.fields import ConfigFile, Field, SameAs, copied, fixed
from keras_addnorm.interop.families.generation_settings import GenerationSettings
from keras_addnorm.interop.families.rows import TRANSPOSED, Extra, Row, WeightTable
from keras_addnorm.interop.tensor_files import Options, read_torch, tensors_in
from keras_addnorm.models import Seq2SeqConfig

_SINUSOIDAL = {
    "name": "sinusoidal",
    "layout": "halves",
    "timescales": "half_minus_one",
    "offset": 2,
}


_SIDES = ("encoder", "decoder")
_TIED = "share_decoder_input_output_embed"


def _both(
    name: str, default: Any, ours: str = "", values: Mapping[Any, Any] | None = None
) -> tuple[Field, ...]:
    """Return the fields of both sides, which have to agree; or to be `default`, if not ours."""
    if not ours:
        return tuple(fixed(f"{side}_{name}", default) for side in _SIDES)
    return tuple(Field(f"{side}_{name}", default, (ours,), values) for side in _SIDES)


_CONFIG_FILE = ConfigFile(
    "fairseq",
    (
        copied("source_vocabulary", 0, "source_vocabulary_size"),
        copied("target_vocabulary", 0, "target_vocabulary_size"),
        copied("encoder_layers", 6, "num_encoder_layers"),
        copied("decoder_layers", 6, "num_decoder_layers"),
        *_both("embed_dim", 512, "hidden_dim"),
        *_both("ffn_embed_dim", 2048, "intermediate_dim"),
        *_both("attention_heads", 8, "num_heads"),
        *_both("normalize_before", False, "scheme", {True: "pre_ln", False: "post_ln"}),
        *_both("learned_pos", False, "positions", {True: "learned", False: _SINUSOIDAL}),
        copied("max_source_positions", 1024, "max_length"),
        Field(
            "activation_fn",
            "relu",
            ("activation",),
            {
                "relu": "relu",
                "gelu": "gelu",
                "gelu_accurate": "gelu_tanh",
                "gelu_fast": "gelu_tanh",
                "swish": "silu",
            },
        ),
        Field("no_scale_embedding", False, ("embedding_scale",), {False: None, True: 1.0}),
        Field("layernorm_embedding", False, ("embedding_norm",), {False: None, True: "layer_norm"}),
        copied("share_all_embeddings", False, "share_embeddings"),
        copied("tied", True, "tie_embeddings"),
        copied("dropout", 0.1, "dropout"),
        copied("attention_dropout", 0.0, "attention_dropout"),
        copied("activation_dropout", 0.0, "activation_dropout"),
        copied("decoder_input_dim", SameAs("decoder_embed_dim"), "hidden_dim"),
        copied("decoder_output_dim", SameAs("decoder_embed_dim"), "hidden_dim"),
        fixed("no_token_positional_embeddings", False),
        fixed("no_decoder_final_norm", False),
        fixed("adaptive_input", False),
        fixed("adaptive_softmax_cutoff", None),
        fixed("tie_adaptive_weights", False),
        fixed("char_inputs", False),
        fixed("merge_src_tgt_embed", False),
        fixed("no_cross_attention", False),
        fixed("cross_self_attention", False),
        fixed("lang_tok_replacing_bos_eos", False),
        fixed("base_layers", 0),
        *_both("layers_to_keep", None),
        *_both("xformers_att_config", None),
    ),
    {
        "norm": "layer_norm",
        "epsilon": 1e-5,
        "logits_bias": False,
        "pad_id": 1,
        "start_id": 2,
        "end_id": 2,
    },
    IGNORED | {_TIED},
)


@dataclasses.dataclass(frozen=True)
class Fairseq(Family):
    """A `transformer_*` model that fairseq wrote; its texts are split by whatever it was given.

    Example:
        ```python
        from keras_addnorm.interop import families

        families.get({"name": "fairseq", "ignored": ["my_curriculum"]})
        ```

    Reference:
        Ott et al., "fairseq: A Fast, Extensible Toolkit for Sequence Modeling", 2019.
    """

    def open(self, path: Path) -> Checkpoint:
        """Read the options and the tensors of a `.pt` file."""
        tree = read_torch(path)
        if not isinstance(tree, Mapping) or "model" not in tree:
            raise ValueError(
                f"'{path}' is no checkpoint of fairseq. Expected a dict with 'model', and with "
                "'args' or 'cfg'."
            )
        options = tree.get("args") or (tree.get("cfg") or {}).get("model") or {}
        settings = vars(options) if isinstance(options, Options) else dict(options)
        return Checkpoint(path, settings, tensors_in(tree["model"]))

    def config(self, checkpoint: Checkpoint) -> Seq2SeqConfig:
        """Return our config for the options of the training; those that are not set say nothing."""
        options = checkpoint.settings
        known = {field.name for field in _CONFIG_FILE.fields}
        settings = {
            name: each
            for name, each in options.items()
            if name in known or each not in (None, False, "", [], {})
        }
        tables = [checkpoint.tensors[f"{side}.embed_tokens.weight"] for side in _SIDES]
        return _CONFIG_FILE.read(
            {
                **settings,
                "source_vocabulary": tables[0].shape[0],
                "target_vocabulary": tables[1].shape[0],
                "tied": any(options.get(name) for name in ("share_all_embeddings", _TIED)),
            },
            self.ignored,
        )

    def weights(self, config: Seq2SeqConfig) -> WeightTable:
        """Return the tensors: BART's names without the first word, and tables a side."""
        table = bart_like.weight_table(config)
        decoder, head = "decoder.embed_tokens.weight", "decoder.output_projection.weight"
        rows = [
            dataclasses.replace(
                row, theirs=row.theirs.removeprefix("model.").replace("shared.weight", decoder)
            )
            for row in table.rows
        ]
        extras = [Extra(r"(encoder|decoder)\.(version|embed_positions\._float_tensor)")]
        if config.share_embeddings:
            extras.append(Extra(r"encoder\.embed_tokens\.weight", same_as=decoder))
        if config.tie_embeddings:
            extras.append(Extra(r"decoder\.output_projection\.weight", same_as=decoder))
        else:
            rows.append(Row(("vocabulary_projection.kernel",), head, (TRANSPOSED,)))
        return WeightTable(tuple(rows), tuple(extras))

    def tokenizers(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> TokenizerPair | None:
        """Return nothing: a checkpoint does not say how its texts were split."""
        return None

    def generation(self, checkpoint: Checkpoint, config: Seq2SeqConfig) -> GenerationSettings:
        """Return how fairseq searches unless it is told otherwise: a checkpoint does not say it."""
        return GenerationSettings(
            Beam(5, AveragePenalty(1.0)),
            min(201, config.max_length),
            (MinLength(2),),  # the end token is counted here
        )

    def settings(self, config: Seq2SeqConfig, notes: Mapping[str, Any]) -> None:
        """Refuse: nothing writes such a file here."""
        raise ValueError(
            "fairseq's checkpoints are only read. Expected a family that is written, such as "
            "'m2m_100' for transformers, if the model is like one."
        )
