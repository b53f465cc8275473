"""Checkpoints that no config.json describes: torch.nn.Transformer, and Marian's own files."""

import dataclasses
import importlib.util
import json
import math
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import sentencepiece.sentencepiece_model_pb2 as spm
import torch
from torch import nn

from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.data import (
    PieceIds,
    TextFormat,
    Tokenizer,
    TokenizerPair,
    sentencepiece_pieces,
)
from keras_addnorm.decoding import AveragePenalty, Beam, ForbiddenTokens, Greedy, MaxLength
from keras_addnorm.interop import (
    GenerationSettings,
    Pretrained,
    families,
    load_pretrained,
    make_random_folder,
    save_pretrained,
)
from keras_addnorm.interop.families.marian_files import read_vocabulary
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

V, D = 23, 16


class HomeMade(nn.Module):
    """A model as tutorials have it: embeddings, `nn.Transformer` and a head."""

    def __init__(self, shared=False, tied=False, head_bias=True, **arguments):
        super().__init__()
        self.source = nn.Embedding(V, D)
        self.target = self.source if shared else nn.Embedding(V, D)
        self.body = nn.Transformer(
            D, 4, 2, 1, dim_feedforward=24, dropout=0.0, batch_first=True, **arguments
        )
        self.register_buffer("table", torch.zeros(3))
        if not tied:
            self.head = nn.Linear(D, V, bias=head_bias)
        self.tied = tied

    def forward(self, source, target):
        position = torch.arange(40.0)[:, None]
        angle = position / 10000.0 ** (torch.arange(0, D, 2) / D)
        table = torch.stack([angle.sin(), angle.cos()], -1).reshape(40, D)
        x, y = (
            embed(ids) * D**0.5 + table[: ids.shape[1]]
            for embed, ids in ((self.source, source), (self.target, target))
        )
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        hidden = self.body(
            *(x, y),
            tgt_mask=causal,
            src_key_padding_mask=torch.where(source == 0, -math.inf, 0.0),
            memory_key_padding_mask=torch.where(source == 0, -math.inf, 0.0),
        )
        return hidden @ self.target.weight.T if self.tied else self.head(hidden)


@pytest.mark.parametrize(
    ("choices", "description"),
    [
        ({}, {"target_embedding": "target.weight", "head": "head"}),
        (
            {"shared": True, "tied": True, "norm_first": True, "activation": "gelu"},
            {"model": {"num_heads": 4, "scheme": "pre_ln", "activation": "gelu"}},
        ),
    ],
    ids=["separate", "tied-pre-ln"],
)
def test_a_home_made_model(choices, description, tmp_path):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = HomeMade(**choices)  # without dropout; torch evaluates with other, newer tensors
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    state = {name: each for name, each in theirs.state_dict().items() if name != "target.weight"}
    if not choices.get("shared"):
        state["target.weight"] = theirs.target.weight
    torch.save(state, tmp_path / "model.pt")
    family = {
        **{"name": "torch_transformer", "prefix": "body.", "source_embedding": "source.weight"},
        **{"ignored": ("table",), "model": {"num_heads": 4}},
        **description,
    }
    loaded = load_pretrained(tmp_path / "model.pt", family)
    generator = np.random.default_rng(0)
    source, target = generator.integers(1, V, (2, 7)), generator.integers(1, V, (2, 5))
    source[1, 5:] = 0
    with torch.no_grad():
        expected = theirs(torch.tensor(source), torch.tensor(target)).numpy()
    found = to_numpy(loaded.model({"source": source, "target": target}))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    # And back, as safetensors with the same names.
    save_pretrained(loaded, tmp_path / "mine")
    again = load_pretrained(tmp_path / "mine", family)
    for weight, other in zip(loaded.model.weights, again.model.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), to_numpy(other))


def test_names_that_do_not_fit_are_named(tmp_path):
    theirs = HomeMade()
    torch.save(theirs.state_dict(), tmp_path / "model.pt")
    family = {
        **{"name": "torch_transformer", "model": {"num_heads": 4}, "prefix": "body."},
        **{"source_embedding": "source.weight", "target_embedding": "target.weight"},
    }
    with pytest.raises(ValueError, match=r"not known: table, head\.weight, head\.bias"):
        load_pretrained(tmp_path / "model.pt", family)
    with pytest.raises(ValueError, match=r"Expected the tensors 'transformer\.encoder\.layers\.0"):
        load_pretrained(tmp_path / "model.pt", {**family, "prefix": "transformer."})
    with pytest.raises(ValueError, match=r"has no such field.*Received: \['embedding'\]"):
        load_pretrained(tmp_path / "model.pt", {**family, "embedding": "x"})


TORCH = {"name": "torch_transformer", "model": {"num_heads": 2}, "source_embedding": "s.weight"}


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        # The first three have the weights of Pre-LN or Post-LN, and compute something else.
        ({"scheme": "orthogonal"}, r"cannot be like this model's scheme.*Received: Orthogonal\("),
        ({"scheme": "resi_dual"}, r"Received: ResiDual\(\)"),
        ({"scheme": "no_residual"}, r"Received: NoResidual\(\)"),
        ({"scheme": "t_fixup"}, r"Received: TFixup\(\)"),
        ({"scheme": "mhc_lite"}, r"Received: MHCLite\("),
        ({"norm": "std_layer_norm"}, "cannot be like this model's norm.*'std_layer_norm'"),
        ({"self_attention": "ssru"}, "cannot be like this model's self_attention.*'ssru'"),
        ({"norm": "derf"}, "Expected 'layer_norm'. Received: 'derf'"),
        ({"attention": {"value_norm": "rms_norm"}}, "this model's attention.*'value_norm'"),
        ({"attention": {"value_residual": True}}, "this model's attention.*'value_residual'"),
        ({"attention": {"window": 3}}, r"Expected None, .*Received: {'window': 3}"),
    ],
    ids=str,
)
def test_what_torch_has_no_place_for_is_not_written(choices, message, tmp_path):
    fields = {"num_encoder_layers": 1, "num_decoder_layers": 1, "hidden_dim": 4, "num_heads": 2}
    fields |= {"intermediate_dim": 4, "share_embeddings": True, "scheme": "pre_ln", **choices}
    model = Seq2SeqTransformer(Seq2SeqConfig(9, 9, **fields))
    searches = GenerationSettings.of({}, 5)
    mine = Pretrained(model, None, searches, families.get(TORCH))
    with pytest.raises(ValueError, match=message):
        save_pretrained(mine, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


@pytest.fixture(scope="module")
def npz(tmp_path_factory):
    return make_random_folder("marian_npz", tmp_path_factory.mktemp("npz") / "marian")


MARIAN = families.get("marian_npz")


def opened(path):
    """The checkpoint and its config, without a model."""
    checkpoint = MARIAN.open(path)
    return checkpoint, MARIAN.config(checkpoint)


def changed_npz(folder, path, settings=None, **arrays):
    """The model with other settings or arrays."""
    with np.load(folder / "model.npz") as stored:
        found = dict(stored)
    text = bytes(found["special:model.yml"]).rstrip(b"\0").decode() + (settings or "")
    found["special:model.yml"] = np.frombuffer(text.encode() + b"\0", "int8")
    np.savez(path, **found | arrays)
    return path


def test_marian_npz_is_their_model_with_marians_positions_and_epsilon(npz):
    """transformers' model with the same weights, and with the two things that it does otherwise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import MarianConfig, MarianMTModel
    marian = load_pretrained(npz)
    config = marian.model.config
    size = config.source_vocabulary_size
    theirs = MarianMTModel(
        MarianConfig(
            **{"vocab_size": size, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2},
            **{"encoder_attention_heads": 2, "decoder_attention_heads": 2},
            **{"encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "activation_function": "swish"},
            **{"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0},
            **{"scale_embedding": True, "max_position_embeddings": 32},
        )
    ).eval()
    with np.load(npz / "model.npz") as arrays, torch.no_grad():
        names = {"self": "self_attn", "context": "encoder_attn"}
        for side, stack in (("encoder", theirs.model.encoder), ("decoder", theirs.model.decoder)):
            for index, layer in enumerate(stack.layers, start=1):
                for name, their_name in names.items():
                    if not hasattr(layer, their_name):
                        continue
                    attention, before = getattr(layer, their_name), f"{side}_l{index}_{name}"
                    for letter, part in zip("qkvo", ("q", "k", "v", "out"), strict=True):
                        linear = getattr(attention, f"{part}_proj")
                        linear.weight.copy_(torch.tensor(arrays[f"{before}_W{letter}"].T))
                        linear.bias.copy_(torch.tensor(arrays[f"{before}_b{letter}"][0]))
                    norm = getattr(layer, f"{their_name}_layer_norm")
                    norm.weight.copy_(torch.tensor(arrays[f"{before}_Wo_ln_scale"][0]))
                    norm.bias.copy_(torch.tensor(arrays[f"{before}_Wo_ln_bias"][0]))
                    norm.eps = 1e-6
                before = f"{side}_l{index}_ffn"
                for number, linear in ((1, layer.fc1), (2, layer.fc2)):
                    linear.weight.copy_(torch.tensor(arrays[f"{before}_W{number}"].T))
                    linear.bias.copy_(torch.tensor(arrays[f"{before}_b{number}"][0]))
                layer.final_layer_norm.weight.copy_(
                    torch.tensor(arrays[f"{before}_ffn_ln_scale"][0])
                )
                layer.final_layer_norm.bias.copy_(torch.tensor(arrays[f"{before}_ffn_ln_bias"][0]))
                layer.final_layer_norm.eps = 1e-6
            frequencies = 10000.0 ** -(torch.arange(8.0) / 7)
            angles = torch.arange(32.0)[:, None] * frequencies
            stack.embed_positions.weight.copy_(torch.cat([angles.sin(), angles.cos()], -1))
        table = torch.tensor(arrays["Wemb"])
        theirs.model.shared.weight.copy_(torch.cat([table, torch.zeros(1, 16)]))
        bias = torch.tensor(arrays["decoder_ff_logit_out_b"])
        never = torch.full((1, 1), -100.0)  # Marian's softmax has no such entry
        theirs.final_logits_bias.copy_(torch.cat([bias, never], -1))
        source = np.random.default_rng(0).integers(2, size - 1, (2, 9))
        target = np.random.default_rng(1).integers(2, size - 1, (2, 6))
        source[1, 6:], target[:, 0] = size - 1, size - 1
        expected = theirs(
            input_ids=torch.tensor(source),
            attention_mask=torch.tensor(source != size - 1),
            decoder_input_ids=torch.tensor(target),
        ).logits.numpy()
    found = to_numpy(marian.model({"source": source, "target": target}))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_marian_npz_with_a_head_of_its_own_and_pre_ln(npz, tmp_path):
    generator = np.random.default_rng(0)
    with np.load(npz / "model.npz") as stored:
        renamed = {
            name.replace("_ln_scale", "_ln_scale_pre").replace("_ln_bias", "_ln_bias_pre"): each
            for name, each in stored.items()
        }
    for side in ("encoder", "decoder"):
        for part in ("scale", "bias"):
            renamed[f"{side}_top_ln_{part}"] = generator.normal(size=(1, 16)).astype("float32")
            name = f"{side}_emb_ln_{part}_pre"
            renamed[name] = generator.normal(size=(1, 16)).astype("float32")
    size = len(renamed["Wemb"])
    head = generator.normal(size=(size, 16)).astype("float32")
    text = bytes(renamed["special:model.yml"]).rstrip(b"\0").decode()
    text += "transformer-preprocess: n\ntransformer-postprocess: da\nversion: v1.12.0 abc\n"
    text += "transformer-postprocess-top: n\ntransformer-ffn-activation: gelu\n"
    text += "transformer-postprocess-emb: nd\ntied-embeddings-src: true\n"
    text += "tied-embeddings: false\ntied-embeddings-all: false\n"

    def saved(**arrays):
        settings = np.frombuffer(text.encode() + b"\0", "int8")
        np.savez(tmp_path / "model.npz", **renamed, **arrays, **{"special:model.yml": settings})
        return tmp_path / "model.npz"

    del renamed["special:model.yml"]
    model = load_pretrained(saved(decoder_ff_logit_out_Wt=head), tokenizers=None).model
    config = model.config
    assert (config.scheme, config.activation, config.tie_embeddings) == (
        *("pre_ln", "gelu_sigmoid", False),
    )
    kernel = to_numpy(model.vocabulary_projection.kernel)
    np.testing.assert_array_equal(kernel[:, :-1], head.T)
    assert not kernel[:, -1].any()
    assert to_numpy(model.vocabulary_projection.bias)[-1] == -100
    final = model.decoder.final_norm
    np.testing.assert_array_equal(to_numpy(final.gamma), renamed["decoder_top_ln_scale"][0])
    first = model.encoder_embedding.embedding_norm
    np.testing.assert_array_equal(to_numpy(first.beta), renamed["encoder_emb_ln_bias_pre"][0])
    # As older versions store it.
    checkpoint, _ = opened(saved(decoder_ff_logit_out_W=head.T))
    np.testing.assert_array_equal(checkpoint.tensors["decoder_ff_logit_out_Wt"].floats(), head)
    # And without a bias, whose place is zeros.
    del renamed["decoder_ff_logit_out_b"]
    with pytest.raises(ValueError, match="missing: decoder_ff_logit_out_b"):
        load_pretrained(saved(decoder_ff_logit_out_Wt=head), tokenizers=None)
    text += "output-omit-bias: true\n"
    checkpoint, _ = opened(saved(decoder_ff_logit_out_Wt=head))
    bias = checkpoint.tensors["decoder_ff_logit_out_b"]
    assert bias.shape == (1, size) and not bias.floats().any()
    # Before 1.11, Marian did not normalise the keys and values of Pre-LN.
    text = text.replace("v1.12.0", "v1.10.28")
    with pytest.raises(ValueError, match=r"keys and values of .*= 'as they are, in Marian v1\.10'"):
        opened(saved(decoder_ff_logit_out_Wt=head))


def test_marian_npz_with_vocabularies_of_two_sizes(npz, tmp_path):
    """The smaller one is filled up with rows that nothing reads or writes."""
    generator = np.random.default_rng(0)
    with np.load(npz / "model.npz") as stored:
        arrays = {name: each for name, each in stored.items() if name != "Wemb"}
        large = stored["Wemb"]
    small = generator.normal(size=(len(large) - 5, 16)).astype("float32")

    def saved(encoder, decoder):
        tables = {"encoder_Wemb": encoder, "decoder_Wemb": decoder}
        bias = arrays["decoder_ff_logit_out_b"][:, : len(decoder)]
        np.savez(tmp_path / "model.npz", **arrays | tables | {"decoder_ff_logit_out_b": bias})
        return tmp_path / "model.npz"

    size = len(large)
    checkpoint, config = opened(saved(small, large))
    sizes = config.source_vocabulary_size, config.target_vocabulary_size
    assert (*sizes, config.pad_id) == (size + 1, size + 1, size)
    table = checkpoint.tensors["encoder_Wemb"].floats()
    np.testing.assert_array_equal(table[: len(small)], small)
    assert len(table) == size and not table[len(small) :].any()
    model = load_pretrained(saved(large, small), tokenizers=None).model
    logits = to_numpy(model({"source": np.array([[2, 3]]), "target": np.array([[size, 4]])}))
    assert logits.shape[-1] == size + 1 and (logits[..., len(small) :] == -100).all()


LISTED = """</s>: 0
<unk>: 1
\u2581A: 2
"\\"": 3
'it''s': 4
? a long key
: 5
1: 6
yes: 7
"\\x85": 8
a: b: 9
": ": 10
"""


def test_lists_of_pieces_are_read_as_marian_writes_them(tmp_path):
    path = tmp_path / "vocab.yml"
    path.write_text(LISTED, encoding="utf-8")
    found = read_vocabulary(path)
    names = [
        "</s>",
        "<unk>",
        "\u2581A",
        '"',
        "it's",
        "a long key",
        "1",
        "yes",
        "\x85",
        "a: b",
        ": ",
    ]
    assert found == {name: index for index, name in enumerate(names)}
    path.write_text("</s>: 0\nwhat\n")
    with pytest.raises(ValueError, match=r"vocab\.yml' is no list of pieces.*line 2: 'what'"):
        read_vocabulary(path)


def test_pieces_with_the_ids_of_a_list(npz, tmp_path):
    """OPUS-MT's own files: a model of pieces a side, and one list for both."""
    pieces = sentencepiece_pieces(npz / "vocab.spm")
    names = [*pieces[:2], *reversed(pieces[2:])]
    lines = (f"{json.dumps(name)}: {index}\n" for index, name in enumerate(names))
    for name in ("source.spm", "target.spm"):
        shutil.copy(npz / "vocab.spm", tmp_path / name)
    shutil.copy(npz / "model.npz", tmp_path)
    (tmp_path / "opus.vocab.yml").write_text("".join(lines), encoding="utf-8")
    opus = MARIAN.tokenizers(*opened(tmp_path))
    own = MARIAN.tokenizers(*opened(npz))
    text = "A dog runs through the garden."
    found = [opus.source.pieces[token] for token in opus.source.encode(text)]
    assert found == [own.source.pieces[token] for token in own.source.encode(text)]
    assert opus.source.encode(text) != own.source.encode(text)
    assert opus.target.decode(opus.target.encode(text)) == text
    # Of another model, or of none.
    (tmp_path / "opus.vocab.yml").write_text("</s>: 0\n<unk>: 1\n")
    with pytest.raises(ValueError, match=r"not those of its tables.*Received: 2 and 2"):
        MARIAN.tokenizers(*opened(tmp_path))
    for path in (*tmp_path.glob("*.spm"), *tmp_path.glob("*.yml")):
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"no vocabularies.*Received: model\.npz"):
        MARIAN.tokenizers(*opened(tmp_path))


def test_marian_npz_searches_as_decoder_yml_says(npz, tmp_path):
    found = MARIAN.generation(*opened(npz))
    limits = (MaxLength(1, source_factor=3.0), ForbiddenTokens((1,)))
    assert found == GenerationSettings(
        Beam(4, AveragePenalty(1.0), early_stopping=False), 512, limits, early_stopping=False
    )
    shutil.copy(npz / "model.npz", tmp_path / "model.npz")
    path = tmp_path / "model.npz.decoder.yml"  # as Marian itself names it
    path.write_text(
        "beam-size: 1\nnormalize: 0.6\nword-penalty: 0.2\nallow-unk: true\nmax-length-factor: 2\n"
    )
    found = MARIAN.generation(*opened(tmp_path))
    assert found.strategy == Greedy(AveragePenalty(0.6))
    assert found.constraints == (MaxLength(1, source_factor=2.0),)
    assert found.not_followed == ("word-penalty = 0.2",)
    path.write_text("beam-size: 1\nnormalize: a lot\n")
    with pytest.raises(ValueError, match=r"'normalize' is no number.*Received: 'a lot'"):
        MARIAN.generation(*opened(tmp_path))
    path.unlink()
    os.mkfifo(path)  # not passed over as if there were none
    with pytest.raises(ValueError, match=r"decoder\.yml' is a pipe, which is read once"):
        MARIAN.generation(*opened(tmp_path))
    path.unlink()  # Marian's own defaults
    found = MARIAN.generation(*opened(tmp_path))
    assert found.strategy == Beam(12, AveragePenalty(0.0), early_stopping=False)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("transformer-decoder-autoreg: rnn\n", "dec-cell of the decoder = 'gru'; expected 'ssru'"),
        (
            "transformer-ffn-depth: 3\ntransformer-tied-layers: [1, 1]\nulr-dim-emb: 4\n"
            "transformer-decoder-dim-ffn: 64\ninput-types: [sequence, class]\nright-left: true\n"
            "transformer-new-idea: 7\n",
            r"transformer-new-idea = 7; not known.*transformer-ffn-depth = 3; expected 2.*"
            r"tied-layers = \[1, 1\]; expected 'none'.*input-types.*right-left.*ulr.*"
            r"transformer-decoder-dim-ffn = 64; expected the same as transformer-dim-ffn = 32",
        ),
        ("transformer-postprocess: dhn\n", r"-postprocess-top = ', hn, '"),
        ("type: s2s\n", "type = 's2s'; expected 'transformer'"),
        ("transformer-attention-mask: alibi\n", "attention-mask = 'alibi'; expected 'default'"),
    ],
    ids=["gru", "several", "highway", "rnn", "alibi"],
)
def test_marian_models_of_other_kinds_are_refused_by_name(npz, tmp_path, settings, reason):
    path = changed_npz(npz, tmp_path / "model.npz", settings)
    with pytest.raises(ValueError, match=reason):
        load_pretrained(path, tokenizers=None)


# All that stands in the model.yml of Marian 1.12, of a model of its task transformer-base.
MODEL_YML = """\
bert-train-type-embeddings: true
bert-type-vocab-size: 2
dec-cell: gru
dec-cell-base-depth: 2
dec-cell-high-depth: 1
dim-rnn: 1024
dim-vocabs: [91, 91]
enc-cell: gru
enc-cell-depth: 1
enc-type: bidirectional
factors-combine: sum
factors-dim-emb: 0
input-types: []
layer-normalization: false
lemma-dependency: ""
lemma-dim-emb: 0
output-omit-bias: false
right-left: false
separator-symbol: "[eos]"
skip: false
special-vocab: []
tied-embeddings: false
tied-embeddings-all: true
tied-embeddings-src: false
transformer-aan-activation: swish
transformer-aan-depth: 2
transformer-aan-nogate: false
transformer-alibi-shift: false
transformer-alibi-trainable: false
transformer-attention-mask: default
transformer-decoder-autoreg: self-attention
transformer-decoder-dim-ffn: 0
transformer-decoder-ffn-depth: 0
transformer-dim-aan: 2048
transformer-disable-position-embeddings: false
transformer-ffn-activation: relu
transformer-ffn-depth: 2
transformer-guided-alignment-layer: last
transformer-no-affine: false
transformer-no-bias: false
transformer-no-projection: false
transformer-pool: false
transformer-postprocess: dan
transformer-postprocess-emb: d
transformer-postprocess-top: ""
transformer-preprocess: ""
transformer-rnn-projection: false
transformer-tied-layers: []
transformer-train-position-embeddings: false
ulr: false
ulr-dim-emb: 0
ulr-trainable-transformation: false
version: v1.12.43 c9f287d 2025-06-23 19:47:45 +0000
"""


def test_all_settings_of_a_real_file_are_known(npz, tmp_path):
    path = changed_npz(npz, tmp_path / "model.npz", MODEL_YML)
    _, config = opened(path)
    assert (config.activation, config.embedding_norm, config.max_length) == ("relu", None, 512)


def test_marian_npz_is_no_model_of_transformers(npz, tmp_path):
    marian = load_pretrained(npz, tokenizers=None)
    with pytest.raises(ValueError, match=r"epsilon = 1e-06; expected 1e-05"):
        save_pretrained(marian, tmp_path / "mine", "marian")


@pytest.mark.parametrize("has_texts", [True, False])
def test_marian_npz_goes_back(npz, tmp_path, has_texts):
    marian = load_pretrained(npz, **({} if has_texts else {"tokenizers": None}))
    folder = save_pretrained(marian, tmp_path / "mine")
    with np.load(npz / "model.npz") as before, np.load(folder / "model.npz") as after:
        assert {*before.files} == {*after.files}
        for name in before.files:
            if name != "special:model.yml":
                np.testing.assert_array_equal(before[name], after[name])


# -- a real model, trained by others ----------------------------------------------------------

RUACCENT = importlib.util.find_spec("ruaccent")
TEXTS = [
    "Мама мыла раму.",
    "В лесу родилась ёлочка, в лесу она росла.",
    "На дворе трава, на траве дрова.",
]


@pytest.fixture(scope="module")
def accent():
    """The package's own model, vocabulary and, of texts, its own outputs."""
    if RUACCENT is None:
        pytest.skip("needs: pip install --no-deps ruaccent-predictor==1.2.0")
    from ruaccent.accentor import Accentor

    return Accentor(device="cpu")


def accent_family(**changes):
    return {
        **{"name": "torch_transformer", "source_embedding": "embed.char_embed.weight"},
        **{"prefix": "transformer.", "head": "output_proj", "ignored": (r"embed\.pos_encoding",)},
        **{"model": {"num_heads": 8, "max_length": 256}},
        **changes,
    }


@pytest.mark.slow
def test_texts_of_a_real_model_are_its_own(accent):
    """It pads to 256 and masks nothing: padding is a token for it, and for us then, too."""
    folder = Path(RUACCENT.origin).parent / "model"
    family = accent_family(reads_padding=True)
    model = load_pretrained(folder / "acc_model.pt", family).model
    rows = np.concatenate([accent._text_to_tensor(text).numpy() for text in TEXTS])
    found, _ = model.generate(rows, max_length=80, jit_compile=False)
    texts = [accent._tensor_to_text(torch.tensor(row)) for row in found]
    assert texts == accent._predict_batch(TEXTS)


@pytest.mark.slow
def test_the_export_of_a_real_model_gives_its_texts(accent, tmp_path):
    """Characters as pieces, in the graph; without padding, as its `generate` has rows of one."""
    from keras_addnorm.serving import export_saved_model, load_translator

    folder = Path(RUACCENT.origin).parent / "model"
    model = load_pretrained(folder / "acc_model.pt", accent_family()).model
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    names = [name.replace(" ", "\u2581") for name in vocabulary]
    proto = spm.ModelProto()
    proto.trainer_spec.model_type = 1
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = False
    for name in names:
        kind = {"<unk>": 2}.get(name, 3 if name in ("<pad>", "<s>", "</s>") else 1)
        proto.pieces.add(piece=name, score=-1.0, type=kind)
    tokenizer = Tokenizer(proto.SerializeToString(), PieceIds(tuple(names)))
    pair = TokenizerPair(tokenizer, tokenizer, TextFormat(source_prefix=("<s>",)))
    text = TEXTS[0]
    row = accent._text_to_tensor(text)[:, : len(text) + 2]
    expected = accent._tensor_to_text(accent.model.generate(row, max_len=24)[:, 1:])
    export_saved_model(
        *(model, pair, tmp_path),
        strategies={"translate": "greedy"},
        max_length=24,
        splitting="none",
        batch_buckets=(1,),
        length_buckets=(32,),
    )
    ((found, _),) = load_translator(tmp_path)([text])
    assert found == expected and len(found) > len(text)


def test_a_description_is_data():
    family = families.get(accent_family())
    assert families.get(families.serialize(family)) == family
    assert dataclasses.is_dataclass(family)
