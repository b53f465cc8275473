"""Checkpoints of OpenNMT-py, Eole, Joey NMT and OpenNMT-tf, by a formula in NumPy and float64.

The formula was held against the toolkits' own code, with random weights and all options that are
followed: OpenNMT-py 3.5.1, Eole 0.6.4, Joey NMT 2.3.0, OpenNMT-tf 2.32.0 under tf-keras 2.21. Our
logits were 2e-6 from theirs at most.
"""

import argparse
import dataclasses
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import torch
import yaml
from safetensors.numpy import save_file

from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.decoding import Beam, Greedy
from keras_addnorm.decoding.constraints import ForbiddenTokens
from keras_addnorm.decoding.length_penalties import GNMTPenalty
from keras_addnorm.interop import families, load_pretrained, make_random_folder, save_pretrained
from keras_addnorm.interop.tensor_files import DamagedFileError, read_tensorflow_checkpoint

SOURCES, TARGETS, D, H, F, ENCODERS, DECODERS = 17, 19, 12, 2, 10, 2, 1
K = D // H
SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]


@dataclasses.dataclass(frozen=True)
class Names:
    """What a toolkit calls its tensors, and whether kernels are (out, in)."""

    layers: dict
    attentions: dict
    parts: tuple
    norms: dict
    feed_forward: tuple
    final: dict
    tables: tuple
    head: str
    kernel: str = ".weight"
    bias: str = ".bias"
    gain: str = ".weight"
    offset: str = ".bias"
    is_transposed: bool = True
    shaw: str = ""
    learned: dict = dataclasses.field(default_factory=dict)
    first_position: int = 0


@dataclasses.dataclass(frozen=True)
class Options:
    """What a model computes."""

    is_pre: bool = True
    alpha: float = 1.0
    epsilon: float = 1e-6
    is_rms: bool = False
    activation: str = "relu"
    is_gated: bool = False
    positions: str = "interleaved"
    scale: float = math.sqrt(D)
    groups: int = H
    biases: tuple = ("attention", "feed_forward", "head")
    shares: bool = False
    is_tied: bool = False
    keys_per_sqrt: bool = True


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def random_tensors(names, options, seed=0):
    """All tensors of a model, with gains that are not ones and offsets that are not zeros."""
    generator = np.random.default_rng(seed)
    tensors = {}

    def add(name, *shape):
        tensors[name] = generator.normal(0, 0.3, shape).astype("float32")

    def add_linear(name, inputs, outputs, has_bias):
        shape = (outputs, inputs) if names.is_transposed else (inputs, outputs)
        add(name + names.kernel, *shape)
        if has_bias:
            add(name + names.bias, outputs)

    def add_norm(name):
        add(name + names.gain, D)
        tensors[name + names.gain] += 1
        if not options.is_rms:
            add(name + names.offset, D)

    for side, count in (("encoder", ENCODERS), ("decoder", DECODERS)):
        for layer in (names.layers[side].format(index) for index in range(count)):
            for attention in names.attentions[side]:
                for part, name in zip("qkvo", names.parts, strict=True):
                    width = options.groups * K if part in "kv" else D
                    place = f"{layer}{attention}{name}"
                    add_linear(place, D, width, "attention" in options.biases)
            own = layer + names.attentions[side][0]
            for part in ("keys", "values") if options.positions == "shaw" else ():
                add(names.shaw.format(place=own, part=part), 7, K)
            for norm in names.norms[side]:
                add_norm(layer + norm)
            first, second, last = (layer + name for name in names.feed_forward)
            add_linear(first, D, F, "feed_forward" in options.biases)
            if options.is_gated:
                add_linear(second, D, F, "feed_forward" in options.biases)
            add_linear(last, F, D, "feed_forward" in options.biases)
        if options.is_pre:
            add_norm(names.final[side])
        if options.positions == "learned":
            add(names.learned[side], 40, D)
    add(names.tables[0], SOURCES, D)
    if not options.shares:
        add(names.tables[1], TARGETS, D)
    size = SOURCES if options.shares else TARGETS
    add_linear(names.head, D, size, "head" in options.biases)
    if options.is_tied:
        del tensors[names.head + names.kernel]
    return tensors


def logits(tensors, names, options, source, target, pad):
    """The whole model in float64, one line a step of the toolkits' code."""
    t = {name: each.astype("float64") for name, each in tensors.items()}

    def linear(x, name):
        kernel = t[name + names.kernel]
        return x @ (kernel.T if names.is_transposed else kernel) + t.get(name + names.bias, 0)

    def norm(x, name):
        center = 0 if options.is_rms else x.mean(-1, keepdims=True)
        spread = np.sqrt(((x - center) ** 2).mean(-1, keepdims=True) + options.epsilon)
        return (x - center) / spread * t[name + names.gain] + t.get(name + names.offset, 0)

    def heads(x, count):
        return x.reshape(len(x), -1, count, K).transpose(0, 2, 1, 3)

    def turned(x, is_paired):
        angles = np.arange(x.shape[2])[:, None] * 10000.0 ** (-np.arange(0, K, 2) / K)
        first, second = (x[..., 0::2], x[..., 1::2]) if is_paired else np.split(x, 2, -1)
        found = (first + 1j * second) * np.exp(1j * angles)
        if is_paired:
            return np.stack([found.real, found.imag], -1).reshape(x.shape)
        return np.concatenate([found.real, found.imag], -1)

    def attention(place, mask, memory=None):
        return lambda x: attend(place, x, mask, x if memory is None else memory, memory is None)

    def attend(place, x, mask, memory, is_self):
        q, k, v, output = (place + name for name in names.parts)
        queries = heads(linear(x, q), H)
        keys, values = (heads(linear(memory, n), options.groups) for n in (k, v))
        if options.positions.startswith("rotary") and is_self:
            is_paired = options.positions == "rotary_pairs"
            queries, keys = turned(queries, is_paired), turned(keys, is_paired)
        keys, values = (np.repeat(each, H // options.groups, 1) for each in (keys, values))
        scores = queries @ keys.swapaxes(-1, -2) / math.sqrt(K)
        distance = np.arange(keys.shape[2]) - np.arange(queries.shape[2])[:, None]
        if options.positions == "alibi" and is_self:
            slopes = 2.0 ** (-8 * np.arange(1, H + 1) / H)
            scores -= slopes[:, None, None] * abs(distance)
        if options.positions == "shaw" and is_self:
            index = np.clip(distance, -3, 3) + 3
            of_keys, of_values = (
                t[names.shaw.format(place=place, part=part)][index] for part in ("keys", "values")
            )
            factor = math.sqrt(K) if options.keys_per_sqrt else 1.0
            scores += np.einsum("bhtk,tsk->bhts", queries, of_keys) / factor
        scores = np.where(mask, scores, -1e18)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        context = weights @ values
        if options.positions == "shaw" and is_self:
            context += np.einsum("bhts,tsk->bhtk", weights, of_values)
        return linear(context.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1), output)

    def merged(x, name, sublayer):
        if options.is_pre:
            return x + sublayer(norm(x, name))
        return norm(options.alpha * x + sublayer(x), name)

    def feed_forward(layer):
        first, second, last = (layer + name for name in names.feed_forward)

        def run(x):
            inner = ACTIVATIONS[options.activation](linear(x, first))
            return linear(inner * linear(x, second) if options.is_gated else inner, last)

        return run

    def embedded(ids, table, side):
        x = t[table][ids] * options.scale
        count = ids.shape[1]
        if options.positions == "learned":
            return x + t[names.learned[side]][names.first_position :][:count]
        half = D // 2
        if options.positions == "interleaved":
            angles = np.arange(count)[:, None] * 10000.0 ** (-np.arange(half) / half)
            return x + np.stack([np.sin(angles), np.cos(angles)], -1).reshape(count, D)
        if options.positions.startswith("halves"):
            at = np.arange(count) + int(options.positions[-1])
            angles = at[:, None] * 10000.0 ** (-np.arange(half) / (half - 1))
            return x + np.concatenate([np.sin(angles), np.cos(angles)], -1)
        return x

    def final(x, side):
        return norm(x, names.final[side]) if options.is_pre else x

    seen = (source != pad)[:, None, None]
    memory = embedded(source, names.tables[0], "encoder")
    for layer in (names.layers["encoder"].format(index) for index in range(ENCODERS)):
        (own,), (first, second) = names.attentions["encoder"], names.norms["encoder"]
        memory = merged(memory, layer + first, attention(layer + own, seen))
        memory = merged(memory, layer + second, feed_forward(layer))
    memory = final(memory, "encoder")
    table = names.tables[0 if options.shares else 1]
    x = embedded(target, table, "decoder")
    causal = np.tri(target.shape[1], dtype=bool)
    for layer in (names.layers["decoder"].format(index) for index in range(DECODERS)):
        (own, cross), norms = names.attentions["decoder"], names.norms["decoder"]
        x = merged(x, layer + norms[0], attention(layer + own, causal))
        x = merged(x, layer + norms[1], attention(layer + cross, seen, memory))
        x = merged(x, layer + norms[2], feed_forward(layer))
    x = final(x, "decoder")
    if options.is_tied:
        return x @ t[table].T + t.get(names.head + names.bias, 0)
    return linear(x, names.head)


def ids(pad, start, shares=False, seed=0):
    """Sources of two lengths, and targets."""
    generator = np.random.default_rng(seed)
    source = generator.integers(4, SOURCES, (2, 7))
    target = generator.integers(4, SOURCES if shares else TARGETS, (2, 5))
    source[1, 5:], target[:, 0] = pad, start
    return source, target


def assert_equal_logits(path, family, tensors, names, options, pad, start):
    loaded = load_pretrained(path, family, tokenizers=None)
    source, target = ids(pad, start, options.shares)
    expected = logits(tensors, names, options, source, target, pad)
    found = to_numpy(loaded.model({"source": source, "target": target}))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    return loaded


# -- OpenNMT-py -------------------------------------------------------------------------------

EMBEDDING = "embeddings.make_embedding"
OPENNMT_PY = Names(
    layers={"encoder": "encoder.transformer.{}.", "decoder": "decoder.transformer_layers.{}."},
    attentions={"encoder": ("self_attn",), "decoder": ("self_attn", "context_attn")},
    parts=(".linear_query", ".linear_keys", ".linear_values", ".final_linear"),
    norms={
        "encoder": ("layer_norm", "feed_forward.layer_norm"),
        "decoder": ("layer_norm_1", "layer_norm_2", "feed_forward.layer_norm"),
    },
    feed_forward=("feed_forward.w_1", "feed_forward.w_3", "feed_forward.w_2"),
    final={side: f"{side}.layer_norm" for side in ("encoder", "decoder")},
    tables=tuple(f"{side}.{EMBEDDING}.emb_luts.0.weight" for side in ("encoder", "decoder")),
    head="generator",
    shaw="{place}.relative_positions_embeddings.weight",
)
PY_OPTIONS = {
    **{"encoder_type": "transformer", "decoder_type": "transformer", "layers": -1},
    **{"enc_layers": ENCODERS, "dec_layers": DECODERS, "hidden_size": D, "word_vec_size": D},
    **{"heads": H, "transformer_ff": F, "dropout": [0.1], "attention_dropout": [0.0]},
    **{"rnn_size": 500, "optim": "adam", "batch_size": 64},
}


def vocabularies(shares=False):
    source = SPECIAL + [f"s{index}" for index in range(SOURCES - 4)]
    target = source if shares else SPECIAL + [f"t{index}" for index in range(TARGETS - 4)]
    return {"src": source, "tgt": target, "data_task": "seq2seq", "decoder_start_token": "<s>"}


def write_opennmt_py(path, tensors, changes, shares=False, **parts):
    """A checkpoint as OpenNMT-py saves it: the logits' layer apart, copies of what is shared."""
    model = {name: torch.tensor(each) for name, each in tensors.items()}
    generator = {
        name.removeprefix("generator."): model.pop(name)
        for name in [*model]
        if name.startswith("generator.")
    }
    source, target = OPENNMT_PY.tables
    model.setdefault(target, model[source])
    generator.setdefault("weight", model[target])
    options = argparse.Namespace(**{**PY_OPTIONS, **changes})
    tree = {"model": model, "generator": generator, "vocab": vocabularies(shares)}
    torch.save({**tree, "opt": options, "optim": {"training_step": 7}, **parts}, path)


PY_CASES = {
    "defaults": ({"position_encoding": True}, Options(biases=("head",))),
    "shared": (
        {
            **{"position_encoding": True, "position_encoding_type": "SinusoidalConcat"},
            **{"share_embeddings": True, "share_decoder_embeddings": True, "norm_eps": 1e-5},
            **{"add_ffnbias": True, "pos_ffn_activation_fn": "gelu"},
        },
        Options(
            **{"positions": "halves 0", "shares": True, "is_tied": True, "epsilon": 1e-5},
            **{"biases": ("feed_forward", "head"), "activation": "gelu"},
        ),
    ),
    "rotary": (
        {
            **{"max_relative_positions": -1, "multiquery": True, "layer_norm": "rms"},
            **{"pos_ffn_activation_fn": "silu", "add_qkvbias": True},
        },
        Options(
            **{"positions": "rotary_pairs", "scale": 1.0, "groups": 1, "is_rms": True},
            **{"activation": "silu", "is_gated": True, "biases": ("attention", "head")},
        ),
    ),
    "rotary-halves": (
        {
            **{"max_relative_positions": -1, "rotary_interleave": False},
            **{"pos_ffn_activation_fn": "gated-gelu"},
        },
        Options(
            **{"positions": "rotary_halves", "scale": 1.0, "activation": "gelu"},
            **{"is_gated": True, "biases": ("head",)},
        ),
    ),
    "alibi": (
        {"max_relative_positions": -2},
        Options(positions="alibi", scale=1.0, biases=("head",)),
    ),
    "shaw": (
        {"max_relative_positions": 3, "add_qkvbias": True, "add_ffnbias": True},
        Options(positions="shaw", scale=1.0),
    ),
    "none": ({}, Options(positions="none", scale=1.0, biases=("head",))),
}


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("case", PY_CASES)
def test_opennmt_py_computes_the_same(case, tmp_path):
    changes, options = PY_CASES[case]
    tensors = random_tensors(OPENNMT_PY, options)
    path = tmp_path / "model_step_7.pt"
    write_opennmt_py(path, tensors, changes, options.shares)
    loaded = assert_equal_logits(path, "opennmt_py", tensors, OPENNMT_PY, options, 1, 2)
    with pytest.raises(ValueError, match=r"OpenNMT-py's checkpoints are only read"):
        save_pretrained(loaded, tmp_path / "mine")


def test_opennmt_py_with_its_tensors_in_safetensors(tmp_path):
    options = Options(biases=("head",))
    tensors = random_tensors(OPENNMT_PY, options)
    named = argparse.Namespace(**PY_OPTIONS, position_encoding=True)
    torch.save({"vocab": vocabularies(), "opt": named}, tmp_path / "model.pt")
    with pytest.raises(FileNotFoundError, match=r"holds no tensors.*'model\.safetensors'"):
        load_pretrained(tmp_path, "opennmt_py")
    half = len(tensors) // 2
    for number, names in enumerate((list(tensors)[:half], list(tensors)[half:])):
        part = {name: tensors[name] for name in names}
        save_file(part, tmp_path / f"model.0{number}.safetensors")
    assert_equal_logits(tmp_path, "opennmt_py", tensors, OPENNMT_PY, options, 1, 2)


def test_opennmt_py_of_other_kinds_is_refused_with_all_reasons(tmp_path):
    tensors = random_tensors(OPENNMT_PY, Options(biases=("head",)))
    changes = {
        **{"decoder_type": "rnn", "self_attn_type": "average", "copy_attn": True},
        **{"parallel_residual": True, "num_experts": 4, "sliding_window": 8},
        **{"position_encoding": True, "max_relative_positions": 20, "lora_layers": ["linear_keys"]},
        **{"relative_positions_buckets": 32, "generator_function": "sparsemax"},
    }
    write_opennmt_py(tmp_path / "model.pt", tensors, changes)
    with pytest.raises(ValueError) as error:
        load_pretrained(tmp_path / "model.pt", "opennmt_py")
    for reason in (
        "position_encoding and max_relative_positions = 'True and 20'; not known",
        "decoder_type = 'rnn'; expected 'transformer'",
        "self_attn_type = 'average'; expected 'scaled-dot-flash' or 'scaled-dot'",
        "generator_function = 'sparsemax'; expected 'softmax'",
        "copy_attn = True; expected False",
        "parallel_residual = True; expected False",
        "sliding_window = 8; expected 0",
        "num_experts = 4; expected 0",
        "relative_positions_buckets = 32; expected 0",
        "lora_layers = 'some'; expected 'none'",
    ):
        assert reason in str(error.value)
    write_opennmt_py(
        tmp_path / "model.pt", tensors, {"max_relative_positions": -1, "rotary_dim": 4}
    )
    with pytest.raises(ValueError, match="rotary_dim = 4; expected 'that of a head'"):
        load_pretrained(tmp_path / "model.pt", "opennmt_py")


def test_opennmt_py_files_that_do_not_fit_are_named(tmp_path):
    tensors = random_tensors(OPENNMT_PY, Options(biases=("head",)))
    torch.save({"model": {}}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"no checkpoint of OpenNMT-py.*'opt', 'vocab'"):
        load_pretrained(tmp_path / "other.pt", "opennmt_py")
    other = vocabularies()
    other["src"] = ["<blank>", "<unk>", *other["src"][2:]]
    write_opennmt_py(tmp_path / "model.pt", tensors, {}, vocab=other)
    with pytest.raises(ValueError, match=r"Padding has another id on each side.*0 in the source"):
        load_pretrained(tmp_path / "model.pt", "opennmt_py")
    write_opennmt_py(tmp_path / "model.pt", tensors, {}, vocab={"src": ["a"], "tgt": ["<s>"]})
    with pytest.raises(ValueError, match=r"Missing: <blank>, </s>, <blank> \(of the source\)"):
        load_pretrained(tmp_path / "model.pt", "opennmt_py")
    with pytest.raises(FileNotFoundError, match=r"Expected one \.pt file.*model\.pt, other\.pt"):
        load_pretrained(tmp_path, "opennmt_py")
    del tensors["decoder.layer_norm.weight"]
    write_opennmt_py(tmp_path / "model.pt", tensors, {"position_encoding": True})
    with pytest.raises(ValueError, match=r"missing: decoder\.layer_norm\.weight"):
        load_pretrained(tmp_path / "model.pt", "opennmt_py")


# -- Eole -------------------------------------------------------------------------------------

EOLE = Names(
    layers={side: f"{side}.transformer_layers.{{}}." for side in ("encoder", "decoder")},
    attentions=OPENNMT_PY.attentions,
    parts=OPENNMT_PY.parts,
    norms={
        "encoder": ("input_layernorm", "post_attention_layernorm"),
        "decoder": ("input_layernorm", "precontext_layernorm", "post_attention_layernorm"),
    },
    feed_forward=("mlp.gate_up_proj", "mlp.up_proj", "mlp.down_proj"),
    final=OPENNMT_PY.final,
    tables=("src_emb.embeddings.weight", "tgt_emb.embeddings.weight"),
    head="generator",
    shaw=OPENNMT_PY.shaw,
    learned={"encoder": "src_emb.pe.weight", "decoder": "tgt_emb.pe.weight"},
)


def write_eole(folder, tensors, embeddings, changes, shares=False):
    """A folder as Eole saves it: what is shared once, and one number that nothing reads."""
    folder.mkdir(exist_ok=True)
    scalar = {"decoder.transformer_layers.0.layer_scalar": np.full(1, 9, "float32")}
    save_file({**tensors, **scalar}, folder / "model.00.safetensors")
    words = vocabularies(shares)
    specials = {"bos_token": "<s>", "pad_token": "<blank>", "eos_token": "</s>"}
    words["specials"] = {**specials, "unk_token": "<unk>"}
    (folder / "vocab.json").write_text(json.dumps(words))
    model = {
        **{"architecture": "transformer", "hidden_size": D, "heads": H, "transformer_ff": F},
        "embeddings": {"word_vec_size": D, **embeddings},
        "encoder": {"encoder_type": "transformer", "layers": ENCODERS, "src_word_vec_size": D},
        "decoder": {"decoder_type": "transformer", "layers": DECODERS, "with_cross_attn": True},
        **changes,
    }
    (folder / "config.json").write_text(json.dumps({"data": {}, "model": model}))


EOLE_CASES = {
    "defaults": (
        {"position_encoding_type": "SinusoidalInterleaved"},
        {},
        Options(epsilon=1e-5, biases=("head",)),
    ),
    "shared": (
        {"position_encoding_type": "SinusoidalConcat"},
        {
            **{"share_embeddings": True, "share_decoder_embeddings": True, "layer_norm": "rms"},
            **{"norm_eps": 1e-6, "mlp_activation_fn": "gated-silu", "generator_bias": False},
            **{"add_qkvbias": True},
        },
        Options(
            **{"positions": "halves 0", "shares": True, "is_tied": True, "is_rms": True},
            **{"activation": "silu", "is_gated": True, "biases": ("attention",)},
        ),
    ),
    "learned": (
        {"position_encoding_type": "Learned", "n_positions": 40},
        {"mlp_activation_fn": "gelu-tanh", "add_ffnbias": True},
        Options(
            **{"positions": "learned", "scale": 1.0, "epsilon": 1e-5, "activation": "gelu_tanh"},
            **{"biases": ("feed_forward", "head")},
        ),
    ),
    "rotary": (
        {"position_encoding_type": "Rotary", "normalize": True},
        {"heads_kv": 1, "mlp_activation_fn": "gated-gelu"},
        Options(
            **{"positions": "rotary_pairs", "groups": 1, "epsilon": 1e-5, "activation": "gelu"},
            **{"is_gated": True, "biases": ("head",)},
        ),
    ),
    "relative": (
        {"position_encoding_type": "Relative", "n_positions": 3},
        {"mlp_activation_fn": "silu"},
        Options(
            **{"positions": "shaw", "scale": 1.0, "epsilon": 1e-5, "activation": "silu"},
            **{"biases": ("head",), "keys_per_sqrt": False},
        ),
    ),
}


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("case", EOLE_CASES)
def test_eole_computes_the_same(case, tmp_path):
    embeddings, changes, options = EOLE_CASES[case]
    names = EOLE
    if options.positions == "shaw":  # One table for keys and values, in both toolkits.
        assert "{part}" not in names.shaw
    tensors = random_tensors(names, options)
    write_eole(tmp_path / "eole", tensors, embeddings, changes, options.shares)
    loaded = assert_equal_logits(tmp_path / "eole", "eole", tensors, names, options, 1, 2)
    with pytest.raises(ValueError, match=r"Eole's folders are only read"):
        save_pretrained(loaded, tmp_path / "mine")


def test_eole_of_other_kinds_is_refused_with_all_reasons(tmp_path):
    tensors = random_tensors(EOLE, Options(biases=("head",)))
    embeddings = {"position_encoding_type": "Rotary", "embedding_layer_norm": True}
    changes = {
        **{"architecture": "whisper", "ffn_layernorm": True, "query_norm": True},
        **{"decoder": {"num_experts": 8, "layer_types": "linear", "decoder_type": "rnn"}},
        **{"rope_config": {"scaling_type": "llama3", "rotary_dim": 2}, "newest_option": 1},
        **{"encoder": {"heads": 3, "encoder_layer_style": "postnorm", "what": True}},
    }
    write_eole(tmp_path, tensors, embeddings, changes)
    with pytest.raises(ValueError) as error:
        load_pretrained(tmp_path, "eole")
    for reason in (
        "newest_option = 1; not known",
        "encoder.what = True; not known",
        "architecture = 'whisper'; expected 'custom' or 'transformer'",
        "decoder.decoder_type = 'rnn'; expected 'transformer'",
        "decoder.heads = 2; expected the same as encoder.heads = 3",
        "encoder.ffn_layernorm = True; expected False",
        "encoder.query_norm = True; expected False",
        "decoder.num_experts = 8; expected 0",
        "decoder.layer_types = 'linear'; expected None",
        "encoder.encoder_layer_style = 'postnorm'; expected 'standard'",
        "embeddings.embedding_layer_norm = True; expected False",
        "{'scaling_type': 'llama3'}",
        "decoder.rotary_dim = 2; expected 'that of a head'",
    ):
        assert reason in str(error.value)
    (tmp_path / "model.00.safetensors").unlink()
    with pytest.raises(ValueError, match=r"no folder of Eole.*0 files of tensors"):
        load_pretrained(tmp_path, "eole")


# -- Joey NMT ---------------------------------------------------------------------------------

JOEY_NMT = Names(
    layers={side: f"{side}.layers.{{}}." for side in ("encoder", "decoder")},
    attentions={"encoder": ("src_src_att",), "decoder": ("trg_trg_att", "src_trg_att")},
    parts=(".q_layer", ".k_layer", ".v_layer", ".output_layer"),
    norms={
        "encoder": ("layer_norm", "feed_forward.layer_norm"),
        "decoder": ("x_layer_norm", "dec_layer_norm", "feed_forward.layer_norm"),
    },
    feed_forward=("feed_forward.pwff_layer.0", "", "feed_forward.pwff_layer.3"),
    final={side: f"{side}.layer_norm" for side in ("encoder", "decoder")},
    tables=("src_embed.lut.weight", "trg_embed.lut.weight"),
    head="decoder.output_layer",
)
BIASES = ("attention", "feed_forward")


def joey_nmt_settings(scale=True, **side):
    side = {
        **{"type": "transformer", "num_heads": H, "hidden_size": D, "ff_size": F, "dropout": 0.1},
        **{"embeddings": {"embedding_dim": D, "scale": scale, "dropout": 0.0}},
        **side,
    }
    return {
        **{"initializer": "xavier_uniform", "tied_embeddings": False, "tied_softmax": False},
        "encoder": {**side, "num_layers": ENCODERS},
        "decoder": {**side, "num_layers": DECODERS},
    }


def write_joey_nmt(folder, tensors, model, **sections):
    folder.mkdir(exist_ok=True)
    state = {name: torch.tensor(each) for name, each in tensors.items()}
    state.setdefault("trg_embed.lut.weight", state["src_embed.lut.weight"])
    state.setdefault("decoder.output_layer.weight", state["trg_embed.lut.weight"])
    angles = np.arange(50)[:, None] * 10000.0 ** (-np.arange(D // 2) / (D // 2))
    table = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(1, 50, D)
    state["encoder.pe.pe"] = state["decoder.pe.pe"] = torch.tensor(table, dtype=torch.float32)
    torch.save({"model_state": state, "scaler_state": None}, folder / "best.ckpt")
    (folder / "config.yaml").write_text(yaml.safe_dump({"model": model, **sections}))


JOEY_CASES = {
    "pre": (joey_nmt_settings(layer_norm="pre", activation="gelu"), Options(activation="gelu")),
    "post": (joey_nmt_settings(False, layer_norm="post"), Options(is_pre=False, scale=1.0)),
    "alpha": (
        joey_nmt_settings(layer_norm="post", alpha=1.3, activation="swish"),
        Options(is_pre=False, alpha=1.3, activation="silu"),
    ),
    "tied": (
        {
            **joey_nmt_settings(layer_norm="pre"),
            **{"tied_embeddings": True, "tied_softmax": True},
        },
        Options(shares=True, is_tied=True),
    ),
}


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("case", JOEY_CASES)
def test_joey_nmt_computes_the_same(case, tmp_path):
    model, options = JOEY_CASES[case]
    options = dataclasses.replace(options, biases=BIASES)
    tensors = random_tensors(JOEY_NMT, options)
    folder = tmp_path / "joey"
    write_joey_nmt(folder, tensors, model)
    assert_equal_logits(folder, "joey_nmt", tensors, JOEY_NMT, options, 1, 2)


def test_joey_nmt_without_what_belongs_to_the_training(tmp_path):
    """The state dictionary alone, whose positions are not those of the formula."""
    options = Options(shares=True, is_tied=True, biases=BIASES)
    tensors = random_tensors(JOEY_NMT, options)
    write_joey_nmt(tmp_path, tensors, JOEY_CASES["tied"][0])
    state = torch.load(tmp_path / "best.ckpt")["model_state"]
    state["encoder.pe.pe"] *= 0
    (tmp_path / "best.ckpt").unlink()
    torch.save(state, tmp_path / "9.ckpt")
    with pytest.raises(ValueError, match=r"'encoder\.pe\.pe' is no copy"):
        load_pretrained(tmp_path, "joey_nmt", tokenizers=None)


def test_joey_nmt_of_other_kinds_is_refused_with_all_reasons(tmp_path):
    model = joey_nmt_settings(alpha=1.3, layer_norm="pre", activation="tanh", subsample=True)
    model["encoder"] |= {"type": "recurrent", "layer_norm": None}
    model["decoder"]["embeddings"] = {"embedding_dim": D, "scale": False}
    write_joey_nmt(tmp_path, random_tensors(JOEY_NMT, Options(biases=BIASES)), model)
    with pytest.raises(ValueError) as error:
        load_pretrained(tmp_path, "joey_nmt", tokenizers=None)
    for reason in (
        "decoder.layer_norm and alpha = 'pre and 1.3'; not known",
        "encoder.subsample = True; not known",
        "encoder.type = 'recurrent'; expected 'transformer'",
        "encoder.activation = 'tanh'; expected 'relu' or 'gelu' or 'swish'",
        "encoder.layer_norm = None; expected 'pre' or 'post'",
        "decoder.embeddings.scale = False; expected the same as encoder.embeddings.scale = True",
    ):
        assert reason in str(error.value)
    (tmp_path / "best.ckpt").unlink()
    with pytest.raises(FileNotFoundError, match=r"Expected best\.ckpt or latest\.ckpt"):
        load_pretrained(tmp_path, "joey_nmt")
    (tmp_path / "config.yaml").unlink()
    with pytest.raises(FileNotFoundError, match=r"There is no 'config\.yaml'"):
        load_pretrained(tmp_path, "joey_nmt")


# -- OpenNMT-tf -------------------------------------------------------------------------------

OPENNMT_TF = Names(
    layers={side: f"{side}/layers/{{}}/" for side in ("encoder", "decoder")},
    attentions={"encoder": ("self_attention",), "decoder": ("self_attention", "attention/0")},
    parts=tuple(f"/layer/linear_{part}" for part in ("queries", "keys", "values", "output")),
    norms={
        "encoder": ("self_attention/input_layer_norm", "ffn/input_layer_norm"),
        "decoder": tuple(
            f"{name}/input_layer_norm" for name in ("self_attention", "attention/0", "ffn")
        ),
    },
    feed_forward=("ffn/layer/inner", "", "ffn/layer/outer"),
    final={side: f"{side}/layer_norm" for side in ("encoder", "decoder")},
    tables=tuple(f"examples_inputter/{n}_inputter/embedding" for n in ("features", "labels")),
    head="decoder/output_layer",
    kernel="/kernel",
    bias="/bias",
    gain="/gamma",
    offset="/beta",
    is_transposed=False,
    shaw="{place}/layer/relative_position_{part}",
    learned={
        side: f"{side}/position_encoder/position_embedding" for side in ("encoder", "decoder")
    },
    first_position=1,
)
OPENNMT_TF_POST = dataclasses.replace(
    OPENNMT_TF,
    norms={
        side: tuple(name.replace("input_layer", "output_layer") for name in each)
        for side, each in OPENNMT_TF.norms.items()
    },
)


def write_tensorflow(folder, tensors):
    """An object checkpoint whose variables have these paths, and an optimizer's beside them."""
    root = tf.Module()
    for name, numbers in tensors.items():
        *places, last = name.split("/")
        node = root
        for place in places:
            if not hasattr(node, place):
                setattr(node, place, tf.Module())
            node = getattr(node, place)
        setattr(node, last, tf.Variable(numbers))
    checkpoint = tf.train.Checkpoint(model=root, step=tf.Variable(3))
    return checkpoint.save(str(folder / "ckpt"))


TF_CASES = {
    "pre": (OPENNMT_TF, "relu", Options(positions="halves 1")),
    "post": (
        *(OPENNMT_TF_POST, "gelu_tanh"),
        Options(
            **{"is_pre": False, "positions": "halves 1", "activation": "gelu_tanh"},
            **{"is_tied": True, "biases": ("feed_forward", "head")},
        ),
    ),
    "shared": (
        *(OPENNMT_TF, "relu"),
        Options(shares=True, is_tied=True, positions="learned", biases=BIASES),
    ),
    "relative": (OPENNMT_TF, "silu", Options(positions="shaw", activation="silu")),
}


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("case", TF_CASES)
def test_opennmt_tf_computes_the_same(case, tmp_path):
    names, activation, options = TF_CASES[case]
    options = dataclasses.replace(options, epsilon=1e-3)
    tensors = random_tensors(names, options)
    prefix = write_tensorflow(tmp_path, tensors)
    family = {"name": "opennmt_tf", "model": {"num_heads": H, "activation": activation}}
    loaded = assert_equal_logits(tmp_path, family, tensors, names, options, 0, 1)
    again = families.get(family).open(Path(f"{prefix}.index")).tensors
    assert again.keys() == tensors.keys()
    with pytest.raises(ValueError, match=r"OpenNMT-tf's checkpoints are only read"):
        save_pretrained(loaded, tmp_path / "mine")


def test_opennmt_tf_checkpoints_that_do_not_fit_are_named(tmp_path):
    family = {"name": "opennmt_tf", "model": {"num_heads": H}}
    with pytest.raises(FileNotFoundError, match="no checkpoint of TensorFlow"):
        load_pretrained(tmp_path, family)
    write_tensorflow(tmp_path, {"encoder/layers/0/lstm/kernel": np.ones((2, 2), "float32")})
    with pytest.raises(
        ValueError, match=r"not those of a Transformer of OpenNMT-tf 2.*lstm/kernel"
    ):
        load_pretrained(tmp_path, family)
    with pytest.raises(ValueError, match=r"does not say how many heads.*8 in TransformerBase"):
        load_pretrained(tmp_path, {**family, "model": {}})


def test_damaged_checkpoints_of_tensorflow_say_so(tmp_path):
    prefix = write_tensorflow(tmp_path, {"encoder/layer_norm/gamma": np.ones(3, "float32")})
    tensor = read_tensorflow_checkpoint(Path(prefix))["model/encoder/layer_norm/gamma"]
    assert (tensor.shape, tensor.dtype) == ((3,), np.float32)
    np.testing.assert_array_equal(tensor.floats(), np.ones(3))
    Path(f"{prefix}.data-00000-of-00001").unlink()
    with pytest.raises(DamagedFileError, match=r"damaged.*Copy or download its files again"):
        read_tensorflow_checkpoint(Path(prefix))["model/encoder/layer_norm/gamma"].floats()
    Path(f"{prefix}.index").write_bytes(b"no index")
    with pytest.raises(DamagedFileError, match="damaged"):
        read_tensorflow_checkpoint(tmp_path)


# -- texts, searches and random folders -------------------------------------------------------

RANDOM = {
    "opennmt_py": {"name": "opennmt_py", "source_sentencepiece": "vocab.spm"},
    "eole": {"name": "eole", "source_sentencepiece": "vocab.spm"},
    "joey_nmt": "joey_nmt",
    "opennmt_tf": {
        **{"name": "opennmt_tf", "model": {"num_heads": 2}},
        **{"source_vocabulary": "vocab.txt", "source_sentencepiece": "vocab.spm"},
    },
}
SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1}


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("name", RANDOM)
def test_random_folders_and_their_texts(name, tmp_path):
    path = make_random_folder(name, tmp_path / name, **SMALL)
    loaded = load_pretrained(path, RANDOM[name])
    tokens = (path / "vocab.txt").read_text(encoding="utf-8").split("\n")
    source = loaded.tokenizers.source
    ids = source.encode("A dog runs.")
    assert "".join(tokens[token] for token in ids) == "\u2581A\u2581dog\u2581runs."
    unknown = {"opennmt_tf": len(tokens) - 1}.get(name, 0)
    assert source.encode("\u4f60")[-1] == source.unknown_id == unknown
    # A source of Joey NMT alone has an end.
    row = loaded.tokenizers.bound_format.source_row(ids, ())
    assert row == ([*ids, 3] if name == "joey_nmt" else ids)
    with pytest.raises(ValueError, match="Expected no vocabulary_size"):
        make_random_folder(name, tmp_path / "other", vocabulary_size=900)


def test_a_model_of_pieces_that_is_named_and_missing(tmp_path):
    path = make_random_folder("eole", tmp_path / "eole", **SMALL)
    with pytest.raises(FileNotFoundError, match=r"no file '.*other\.spm'"):
        load_pretrained(path, {"name": "eole", "source_sentencepiece": "other.spm"})


@pytest.fixture(scope="module")
def joey(tmp_path_factory):
    return make_random_folder("joey_nmt", tmp_path_factory.mktemp("joey") / "joey", **SMALL)


def test_searches_of_joey_nmt(joey, tmp_path):
    path = shutil.copytree(joey, tmp_path / "joey")
    family = families.get("joey_nmt")
    settings = yaml.safe_load((path / "config.yaml").read_text())

    def search(**testing):
        changed = json.loads(json.dumps({**settings, "testing": testing}))
        (path / "config.yaml").write_text(yaml.safe_dump(changed))
        checkpoint = family.open(path)
        return family.generation(checkpoint, family.config(checkpoint))

    assert search(beam_size=5, beam_alpha=0.8).strategy == Beam(5, GNMTPenalty(0.8))
    found = search(generate_unk=False, max_output_length=9, repetition_penalty=1.2)
    assert isinstance(found.strategy, Greedy) and found.max_length == 9
    assert found.constraints == (ForbiddenTokens((0,)),)
    assert found.not_followed == ("repetition_penalty = 1.2",)


@pytest.mark.parametrize("value", [[1], "x", 3])
@pytest.mark.parametrize(
    "place",
    [
        *(("model",), ("model", "encoder"), ("model", "decoder", "embeddings"), ("data",)),
        *(("data", "src"), ("data", "trg", "tokenizer_cfg"), ("data", "special_symbols")),
        ("testing",),
    ],
    ids=".".join,
)
def test_settings_of_joey_nmt_of_another_form_are_named(joey, place, value, tmp_path):
    settings = yaml.safe_load((joey / "config.yaml").read_text())
    inner = settings
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    for file in ("best.ckpt", "vocab.spm", "src_vocab.txt", "trg_vocab.txt"):
        (tmp_path / file).symlink_to(joey / file)
    family = families.get("joey_nmt")
    with pytest.raises(ValueError, match=rf"'{place[-1]}' in config\.yaml.*Received"):
        checkpoint = family.open(tmp_path)
        config = family.config(checkpoint)
        family.generation(checkpoint, config)
        family.tokenizers(checkpoint, config)


@pytest.mark.parametrize("name", ["beam_alpha", "max_output_length", "no_repeat_ngram_size"])
def test_numbers_of_joey_nmt_are_numbers(joey, name, tmp_path):
    settings = yaml.safe_load((joey / "config.yaml").read_text())
    settings["testing"][name] = "many"
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "best.ckpt").symlink_to(joey / "best.ckpt")
    family = families.get("joey_nmt")
    with pytest.raises(ValueError, match=rf"The setting '{name}' is no number.*'many'"):
        checkpoint = family.open(tmp_path)
        family.generation(checkpoint, family.config(checkpoint))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"src": {"a": 1}}, "no list of tokens 'src'"),
        ({"tgt": [1, 2]}, r"no list of tokens 'tgt'.*Received: \[1, 2\]"),
        ({"specials": ["<s>"]}, r"'specials' of '.*vocab\.json' is not of the form"),
    ],
)
def test_vocabularies_of_eole_of_another_form_are_named(changes, reason, tmp_path):
    path = make_random_folder("eole", tmp_path / "eole", **SMALL)
    values = json.loads((path / "vocab.json").read_text())
    (path / "vocab.json").write_text(json.dumps({**values, **changes}))
    with pytest.raises(ValueError, match=reason):
        families.get("eole").open(path)


def test_texts_of_joey_nmt_that_are_split_otherwise_are_refused(joey, tmp_path):
    path = shutil.copytree(joey, tmp_path / "joey")
    tokens = (path / "src_vocab.txt").read_text(encoding="utf-8")
    shorter = tokens.replace("\nhe\n", "\nzz\n")
    assert shorter != tokens
    (path / "src_vocab.txt").write_text(shorter, encoding="utf-8")
    with pytest.raises(ValueError, match=r"1 pieces of 'vocab\.spm' without an id, such as 'he'"):
        load_pretrained(path, "joey_nmt")
    settings = yaml.safe_load((path / "config.yaml").read_text())
    settings["data"]["src"] = {"level": "word", "lowercase": True}
    settings["data"]["special_symbols"] = {"lang_tags": ["<de>"]}
    (path / "config.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(ValueError) as error:
        load_pretrained(path, "joey_nmt")
    for reason in (
        "lang_tags = ['<de>']",
        "src: level = 'word'",
        "src: tokenizer_type = None",
        "src: lowercase = True",
        "src: model_file = 'missing'",
    ):
        assert reason in str(error.value)


def test_descriptions_are_data():
    for description in RANDOM.values():
        family = families.get(description)
        assert families.get(families.serialize(family)) == family
