"""The configuration: what is read is what is written, and what is not known is refused."""

import tomllib

import numpy as np
import pytest

from keras_addnorm.basics.errors import SettingsError
from keras_addnorm.basics.fields import Limits, list_settings
from keras_addnorm.data.buckets import Bucketing
from keras_addnorm.decoding import LongTexts, NoSplitting, Sentences
from keras_addnorm.layers import AttentionConfig
from keras_addnorm.models import Seq2SeqConfig
from keras_addnorm.runs import RunConfig, RunDirectory, UserError
from keras_addnorm.runs.settings import (
    EvaluationConfig,
    ModelChoice,
    TokenizerConfig,
    TrainingConfig,
)
from keras_addnorm.runs.toml_files import by_dotted_key, merge, parse_assignment, read_toml

FULL = {
    "data": 'a "quoted" földer',
    "source": "fr",
    "target": "es",
    "data_format": "csv",
    "source_column": "3",
    "target_column": "answer",
    "split": "train[:3]",
    "validation": "train[:1%]",
    "licence": "CC0",
    "tokenizer": {
        "kind": "unigram",
        "vocabulary_size": 31,
        "joint": False,
        "normalization": "nfkc",
        "user_defined_symbols": ["<2de>", "\n"],
        "byte_fallback": True,
        "character_coverage": 0.9995,
        "sample_pairs": 77,
    },
    "model": {
        "preset": "small",
        "hidden_dim": 12,
        "scheme": {"name": "deep_norm"},
        "norm": "rms_norm",
        "self_attention": "ssru",
        "kernel_initializer": "he_normal",
        "num_encoder_layers": 2,
        "num_decoder_layers": 1,
        "intermediate_dim": 20,
        "num_heads": 3,
        "dropout": 0.2,
    },
    "training": {
        "epochs": 3,
        "max_updates": 34,
        "validate_every": 17,
        "tokens_per_batch": 101,
        "num_buckets": 5,
        "max_length": 17,
        "bucket_lengths": [7, 11],
        "label_smoothing": 0.0,
        "r_drop": 2.5,
        "subword_sampling": 0.15,
        "schedule": "noam",
        "optimizer": "muon",
        "peak_learning_rate": 2,
        "warmup_steps": 13,
        "cooldown_epochs": 1,
        "beta_2": 0.9,
        "epsilon": 1e-7,
        "clipnorm": 1.5,
        "clip_by": "all",
        "batches_per_update": 23,
        "precision": "bfloat16",
        "jit_compile": False,
        "average_last": 2,
        "keep_last": 3,
        "checkpoint_minutes": 0.5,
        "checkpoint_batches": 19,
        "best_metric": "val_bleu",
        "keep_best": 4,
        "ema": 0.75,
        "early_stopping": 8,
        "score_every": 4,
        "score_pairs": 5,
        "monitor_every": 7,
        "strict": True,
        "distribution": "model",
        "devices_per_model": 3,
        "rows_multiple_of": 6,
        "start_from": "runs/before",
        "lora_rank": 4,
        "guided_alignment": 0.25,
        "alignments": "links.txt",
        "teacher": "runs/big",
        "distillation": 0.5,
        "temperature": 2.0,
        "eight_bits": True,
        "seed": 6,
    },
    "evaluation": {
        "num_beams": 2,
        "length_penalty": 0.3,
        "length_penalty_kind": "average",
        "beam_stopping": "enough_finished",
        "max_length": 17,
        "max_length_factor": 2.5,
        "min_length": 2,
        "no_repeat_ngram": 3,
        "forbidden_ids": [5, 7],
        "shortlist": 300,
        "splitting": "long_texts",
        "batch_size": 8,
        "samples": 0,
        "bleu_tokenizer": "char",
    },
}


def test_every_setting_survives_toml(tmp_path):
    config = RunConfig.from_dict(FULL)
    directory = RunDirectory(tmp_path / "run")
    directory.write_config(config)
    assert directory.read_config() == config
    assert read_toml(directory.config) == FULL


def test_full_has_every_setting():
    """The test above means what it says: `FULL` names all that there is, none at its default."""
    for one in list_settings(RunConfig):
        value = FULL
        for name in one.key.split("."):
            value = value[name]
        assert value != one.default, one.key


def test_batches_are_shaped_as_the_pipeline_would_without_a_configuration():
    assert TrainingConfig().bucketing == Bucketing()
    assert RunConfig.from_dict(FULL).training.bucketing == Bucketing(5, (7, 11), 17, 101, 6)


def test_defaults_are_written_out():
    written = tomllib.loads(RunConfig().to_toml())
    assert written["training"]["beta_2"] == 0.98
    assert written["training"]["epsilon"] == 1e-9
    assert (written["evaluation"]["num_beams"], written["evaluation"]["length_penalty"]) == (4, 0.6)
    assert RunConfig.from_dict(written) == RunConfig()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trainning": {}}, "Unknown setting 'trainning'. Did you mean 'training'"),
        ({"training": {"epoch": 3}}, r"Unknown setting 'training.epoch'.*'training.epochs'"),
        ({"tokenizer": {"kind": "bpee"}}, "Unknown tokenizer.kind 'bpee'. Did you mean 'bpe'"),
        ({"training": {"schedule": "inverse"}}, "Expected one of: constant, cosine, inverse_sq"),
        ({"training": {"epochs": "3"}}, r"training.epochs must be a whole number. Received: '3'\."),
        ({"training": {"epochs": True}}, "training.epochs must be a whole number. Received: true"),
        ({"training": {"epochs": 0}}, "training.epochs must be at least 1. Received: 0"),
        (
            {"training": {"jit_compile": 1}},
            "training.jit_compile must be true or false. Received: 1",
        ),
        ({"training": {"bucket_lengths": 16}}, "must be a list of whole numbers. Received: 16"),
        (
            {"training": {"bucket_lengths": [16, 1.5]}},
            "bucket_lengths must be a whole number. Received: 1.5",
        ),
        (
            {"training": {"bucket_lengths": [1, 16]}},
            r"numbers of at least 2. Received: \[1, 16",
        ),
        ({"training": {"num_buckets": 0}}, "training.num_buckets must be at least 1. Received: 0"),
        ({"training": {"max_length": 1}}, "training.max_length must be at least 2. Received: 1"),
        ({"training": {"bucket_lengths": [32, 16]}}, r"must be rising lengths. Received: \[32, 16"),
        ({"training": {"label_smoothing": 1.0}}, "must be at least 0 and below 1. Received: 1.0"),
        (
            {"training": {"seed": -1}},
            "seed must be at least 0 and at most 4294967295. Received: -1",
        ),
        ({"training": {"seed": 2**32}}, "at most 4294967295. Received: 4294967296"),
        ({"training": {"peak_learning_rate": float("inf")}}, "finite in float32. Received: inf"),
        ({"training": {"peak_learning_rate": float("nan")}}, "finite in float32. Received: nan"),
        ({"training": {"peak_learning_rate": 1e-40}}, "above 0. Received: 1e-40, which is 0 in"),
        ({"training": {"epsilon": 1e-60}}, "epsilon must be above 0. Received: 1e-60, which is 0"),
        ({"training": {"clipnorm": 0}}, "clipnorm must be above 0. Received: 0"),
        ({"training": {"epsilon": 1e39}}, "epsilon must be a number, finite in float32. Rec"),
        ({"training": {"beta_2": 1 - 1e-9}}, "below 1. Received: 0.999999999, which is 1 in fl"),
        ({"training": {"r_drop": float("inf")}}, "r_drop must be a number, finite"),
        ({"training": {"checkpoint_minutes": float("inf")}}, "must be a number, finite"),
        ({"evaluation": {"length_penalty": float("nan")}}, "length_penalty must be a number"),
        ({"training": {"epochs": 4, "cooldown_epochs": 5}}, "at most training.epochs = 4. Rec"),
        ({"training": {"cooldown_epochs": -1}}, "cooldown_epochs must be at least 0. Received: -1"),
        ({"training": {"cooldown_epochs": 1, "schedule": "constant"}}, "0 with .* 'constant'"),
        ({"training": 3}, "training must be a table. Received: 3"),
        ({"model": {"preset": "tinny"}}, "Unknown model.preset 'tinny'. Did you mean 'tiny'"),
        ({"model": {"hidden_dim": 0}}, "model.hidden_dim must be at least 1. Received: 0"),
        (
            {"model": {"dropout": 1.5}},
            "model.dropout must be at least 0 and below 1. Received: 1.5",
        ),
        ({"model": {"num_heads": "4"}}, "model.num_heads must be a whole number. Received: '4'"),
        (
            {"evaluation": {"max_length": 4, "min_length": 5}},
            "evaluation.min_length must be at most evaluation.max_length = 4. Received: 5",
        ),
        ({"tokenizer": {"vocabulary_size": 4}}, "vocabulary_size must be at least 5. Received: 4"),
        ({"training": {"beta_2": 1.0}}, "beta_2 must be at least 0 and below 1. Received: 1.0"),
        (
            {"evaluation": {"max_length": 0}},
            "evaluation.max_length must be at least 1. Received: 0",
        ),
        ({"evaluation": {"num_beams": 0}}, "evaluation.num_beams must be at least 1. Received: 0"),
        (
            {"evaluation": {"shortlist": 3}},
            "evaluation.shortlist must be 0 or at least 4. Received: 3",
        ),
        ({"source": "de"}, "target must be another language than source. Received: 'de'"),
        ({"data": ""}, "data must be a data set name or a folder. Received: ''"),
    ],
)
def test_refuses(settings, message):
    with pytest.raises(UserError, match=message):
        RunConfig.from_dict(settings)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainingConfig(jit_compile="no"), "training.jit_compile must be true or false. R"),
        (lambda: TrainingConfig(strict=1, epochs="3"), "2 settings are wrong"),
        (lambda: TokenizerConfig(joint="no"), "tokenizer.joint must be true or false. Received: '"),
        (lambda: EvaluationConfig(num_beams="4"), "evaluation.num_beams must be a whole number"),
        (lambda: ModelChoice(preset=3), "model.preset must be text. Received: 3"),
        (lambda: RunConfig(data=3), "data must be text. Received: 3"),
    ],
)
def test_a_call_is_checked_as_a_file_is(make, message):
    with pytest.raises(SettingsError, match=message):
        make()


def test_numbers_and_switches_of_numpy_become_those_of_python():
    config = TrainingConfig(strict=np.True_, epochs=np.int64(3))
    assert config.strict is True and type(config.epochs) is int


def test_all_that_is_wrong_is_said_at_once():
    wrong = {
        "sauce": "en",
        "tokenizer": {"kind": "bpee"},
        "training": {"epochs": 0, "seed": -1, "cooldown_epochs": -1, "bucket_lengths": [9, 7]},
        "evaluation": {"samples": "3"},
    }
    with pytest.raises(SettingsError) as caught:
        RunConfig.from_dict(wrong)
    first, *lines = str(caught.value).splitlines()
    assert first == "7 settings are wrong:"
    keys = ("setting 'sauce'", "tokenizer.kind", "training.epochs", "training.cooldown_epochs")
    keys += ("training.seed", "training.bucket_lengths", "evaluation.samples")
    for line, key in zip(lines, keys, strict=True):
        assert key in line, line


@pytest.mark.parametrize(
    ("limits", "text", "allowed", "refused"),
    [
        (Limits(minimum=2), "at least 2", (2, 3), (1, float("nan"))),
        (Limits(minimum=2, maximum=5), "at least 2 and at most 5", (2, 5), (1, 6)),
        (Limits(above=2, below=5), "above 2 and below 5", (3, 4.9), (2, 5)),
        (Limits(above=0), "above 0", (1e9, 3), (0, 1e-50, 1e39, float("inf"))),
        (Limits(minimum=4, off=0), "0 or at least 4", (0, 4), (1, 3, -1)),
        (Limits(choices=("a", "b")), "one of a, b", ("a", "b"), ("c", "")),
    ],
)
def test_limits(limits, text, allowed, refused):
    assert str(limits) == text
    assert all(map(limits.allow, allowed))
    assert not any(map(limits.allow, refused))


def test_tables_by_dotted_key():
    """Only the outermost tables: a scheme may be a table itself."""
    scheme = {"name": "deep_norm"}
    tables = {"data": "x", "model": {"scheme": scheme, "hidden_dim": 3}}
    assert by_dotted_key(tables) == {"data": "x", "model.scheme": scheme, "model.hidden_dim": 3}


def test_replace_and_merge_leave_the_original_alone():
    config = RunConfig.from_dict(FULL)
    changed = config.replace({"training.epochs": 9, "model.drop_path": 0.3})
    assert (config.training.epochs, changed.training.epochs) == (3, 9)
    assert changed.model.overrides == {**config.model.overrides, "drop_path": 0.3}
    assert "drop_path" not in config.model.overrides
    with pytest.raises(UserError, match="'data' is a single value"):
        merge(FULL, {"data.name": 1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model.hidden_dim=64", ("model.hidden_dim", 64)),
        ("model.scheme=deep_norm", ("model.scheme", "deep_norm")),
        ("model.dropout = 0.25", ("model.dropout", 0.25)),
        ("training.jit_compile=false", ("training.jit_compile", False)),
        ("training.bucket_lengths=[8, 16]", ("training.bucket_lengths", [8, 16])),
        ("data=a=b", ("data", "a=b")),
    ],
)
def test_assignment(text, expected):
    assert parse_assignment(text) == expected


@pytest.mark.parametrize("text", ["model.hidden_dim", "=3"])
def test_assignment_needs_key_and_value(text):
    with pytest.raises(UserError, match="--set takes key=value"):
        parse_assignment(text)


@pytest.mark.parametrize("part", ["a.", '"a b" . ', "'a'."])
def test_a_key_of_very_many_parts_is_refused_before_it_is_parsed(part, tmp_path):
    path = tmp_path / "deep.toml"
    path.write_text(f"{part * 1000}b = 1\n")
    with pytest.raises(UserError, match=r"deep\.toml' is not a TOML file: a key has more than 32"):
        RunConfig.read(path)
    path.write_text(f"[{part * 1000}b]\n")
    with pytest.raises(UserError, match="a key has more than 32"):
        RunConfig.read(path)
    nested = f"{part * 31}b = 1\n"
    path.write_text(nested + f"text = '{'x' * 1000}.y'\n")
    found = read_toml(path)
    for _ in range(31):
        (found,) = (value for value in found.values() if isinstance(value, dict))
    assert found == {"b": 1}
    assert parse_assignment(f"data={{{part * 1000}b=1}}")[1].startswith("{")


def test_bad_files(tmp_path):
    with pytest.raises(UserError, match="There is no configuration file"):
        RunConfig.read(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("data = ")
    with pytest.raises(UserError, match="is not a TOML file"):
        RunConfig.read(broken)
    with pytest.raises(UserError, match="is not a run directory"):
        RunDirectory(tmp_path).read_config()
    with pytest.raises(UserError, match="There are no trained weights"):
        RunDirectory(tmp_path).weights()


def test_log_takes_new_columns_and_leaves_out_what_is_missing(tmp_path):
    directory = RunDirectory(tmp_path)
    assert directory.read_log() == []
    rows = [{"epoch": 0, "loss": 2.5}, {"epoch": 1, "loss": 1.25, "val_bleu": 7.0}]
    for _ in range(2):  # A resumed run writes what it has read.
        directory.write_log(directory.read_log() or rows)
        assert directory.log.read_text() == "epoch,loss,val_bleu\n0,2.5,\n1,1.25,7.0\n"
        assert directory.read_log() == rows


def test_averaged_weights_come_first(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.best_weights.touch()
    assert directory.weights() == directory.best_weights
    directory.averaged_weights.touch()
    assert directory.weights() == directory.averaged_weights


def test_attention_and_positions_come_from_toml_and_from_the_command(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        """
        [model]
        positions = "rotary"
        attention = { num_key_value_heads = 2, scale = "learned" }
        """
    )
    changes = dict(map(parse_assignment, ["model.attention.window=5", "model.num_heads=4"]))
    changes |= dict([parse_assignment('model.positions={ name = "rotary", base = 500.0 }')])
    config = RunConfig.read(path).replace(changes)
    again = tmp_path / "again.toml"
    again.write_text(config.to_toml())
    assert RunConfig.read(again) == config
    sizes = {"source_vocabulary_size": 11, "target_vocabulary_size": 11}
    model = Seq2SeqConfig.preset("tiny", **sizes, **config.model.overrides)
    assert model.positions == {"name": "rotary", "base": 500.0}
    assert AttentionConfig.get(model.attention) == AttentionConfig(
        num_key_value_heads=2, scale="learned", window=5
    )


def test_a_run_splits_texts_of_its_source_language():
    config = RunConfig(source="fr")
    names = ("sentences", "long_texts", "none")
    found = [config.replace({"evaluation.splitting": name}).search().splitting for name in names]
    assert found == [Sentences("fr"), LongTexts("fr"), NoSplitting()]
    assert config.search().splitting == found[0]


def test_the_best_epoch_is_chosen_by_what_does_not_depend_on_the_batches():
    assert RunConfig().training.best_metric == "val_perplexity"


def test_a_run_writes_its_scheme_down_and_one_of_before_has_the_old_default(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.write_config(RunConfig())
    assert directory.read_config().model.overrides == {"scheme": "pre_ln"}
    text = directory.config.read_text()
    assert 'scheme = "pre_ln"\n' in text
    directory.config.write_text(text.replace('scheme = "pre_ln"\n', ""))
    before = RunDirectory(tmp_path, verify=False).read_config()
    assert before.model.overrides == {"scheme": "post_ln"}
