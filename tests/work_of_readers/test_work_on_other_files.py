"""Tokenizers, logs, settings and weights made to harm: twice the size takes twice the work."""

import dataclasses
import functools
import json

import h5py
import numpy as np
import pytest
from counted_work import SIZE, naming, require_linear, write
from growing_texts import OF_TEXT, tokenizer
from growing_values import changes_in_memory, changes_of_json

from keras_addnorm.basics import integrity
from keras_addnorm.basics.integrity import Manifest
from keras_addnorm.data import TextFormat, TokenizerPair, load_tokenizer, tokenizer_files
from keras_addnorm.decoding.shortlist import Lexicon
from keras_addnorm.diagnostics.report import Report
from keras_addnorm.diagnostics.report_data import NormStatistics, SublayerReport, Verdict
from keras_addnorm.models import Seq2SeqConfig
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.training import held_variables
from keras_addnorm.training.checkpoint_file import read_checkpoint


@pytest.mark.parametrize("name", OF_TEXT)
def test_work_on_texts_grows_with_them(tmp_path, name):
    file, contents, read = OF_TEXT[name]
    for what, content in contents.items():
        with naming(what):
            require_linear(
                lambda n, made=content: write(tmp_path / file, made(n)),
                functools.partial(read, tmp_path / file),
            )


@pytest.mark.parametrize("name", tokenizer_files._TABLE.names())
def test_work_on_tokenizers_grows_with_their_files(tmp_path, no_models, name):
    saved = tokenizer(name).save(tmp_path / "tokenizer.model")
    path = saved.rename(tmp_path / "tokenizer.json")
    for what, change in changes_of_json(path):
        with naming(what):
            require_linear(change, lambda: load_tokenizer(path))


def a_report():
    """A report with one of everything."""
    norm = {field.name: 1.0 for field in dataclasses.fields(NormStatistics)} | {"slot": "pre_norm"}
    numbers = {field.name: 1.0 for field in dataclasses.fields(SublayerReport)}
    heads = {"entropy": [1.0], "entropy_share": [1.0], "similarity": [[1.0]]}
    streams = {"rms": [1.0], "cosine": [[1.0]]}
    sublayer = {"name": "encoder/0/self_attention", "norms": [norm], "attention": heads}
    verdict = {field.name: "x" for field in dataclasses.fields(Verdict)} | {"sublayers": ["x"]}
    words = {"name": "x", "queries": ["a"], "keys": ["b"], "weights": [[[1.0]]]}
    return {
        **Report(loss=2.0, sublayers=(), verdicts=()).to_dict(),
        "sublayers": [{**numbers, **sublayer, "streams": streams}],
        "verdicts": [verdict],
        "attention_maps": [words],
    }


def test_work_on_values_grows_with_them(tmp_path, no_models):
    config = Seq2SeqConfig(source_vocabulary_size=9, target_vocabulary_size=9).to_dict()
    pair = TokenizerPair.of(tokenizer("byte"))
    pair.save(tmp_path / "pair")
    for name, values, read in (
        ("a report", a_report(), Report.from_dict),
        ("a config", config, Seq2SeqConfig.from_dict),
        ("a text format", pair.text_format.to_dict(), TextFormat.from_dict),
    ):
        kept, found = changes_in_memory(values)
        for what, change in found:
            with naming(f"{name}, {what}"):
                require_linear(change, lambda kept=kept, read=read: read(kept[0]))


def test_work_on_lists_of_digests_and_scores_grows_with_them(tmp_path):
    def write_digests(count):
        files = {f"x{i}": "0" * 64 for i in range(count)}
        content = {"files": files, "digest": integrity._digest_of_list(files)}
        (tmp_path / "manifest.json").write_text(json.dumps(content))

    def write_scores(count):
        scores = {f"x{i}": {"bleu": 1.0} for i in range(count)}
        (tmp_path / "scores.json").write_text(json.dumps(scores))

    require_linear(write_digests, lambda: Manifest(tmp_path).read())
    (tmp_path / "manifest.json").unlink()
    require_linear(write_scores, lambda: RunDirectory(tmp_path).read_scores())


def test_work_on_a_lexicon_grows_with_its_arrays(tmp_path):
    path = tmp_path / "lexicon.npz"

    def write_rows(count):
        rows = np.zeros((count, 2), "int32")
        Lexicon(rows, rows.astype("float32"), np.zeros(count, "float32")).save(path)

    def write_arrays(count):
        np.savez(path, **{f"x{i}": np.zeros(1) for i in range(count)})

    for made in (write_rows, write_arrays):
        require_linear(made, lambda: Lexicon.load(path))


STATE = {"epoch": 1, "random": [[1]], "metrics": [1.0], "callbacks": {"a": {"b": 1}}}
PLACE = {"path": "a", "shape": [1], "dtype": "float32", "data_set": "a/x", "of_optimizer": False}


def write_weights(path, *, state=STATE, places=(PLACE,), more=lambda file: None):
    with h5py.File(path, "w") as file:
        file["a/x"] = np.zeros(1, "float32")
        for name, values in ((integrity.STATE_NAME, state), (held_variables._TABLE, places)):
            file[name] = np.frombuffer(json.dumps(values).encode(), np.uint8)
        more(file)
        integrity.write_weights_digest(file)


def read_weights(path):
    read_checkpoint(path)
    with integrity.open_weights(path) as file:
        held_variables.read_places(file)


def grows(make):
    """What writes so many of something into a file of HDF5."""

    def more(count):
        def change(file):
            for number in range(count):
                make(file, number)

        return change

    return more


IN_WEIGHTS = {
    "groups": grows(lambda file, number: file.create_group(f"g{number}")),
    "groups in groups": grows(lambda file, number: file.require_group("g/" * min(number + 1, 90))),
    "arrays": grows(lambda file, number: file.create_dataset(f"b/{number}", (1,), "float32")),
    "attributes": grows(lambda file, number: file.attrs.__setitem__(f"x{number}", 1)),
}


def test_work_on_weight_files_grows_with_what_is_in_them(tmp_path, no_models):
    path = tmp_path / "epoch-0001.weights.h5"
    for what, more in IN_WEIGHTS.items():
        with naming(what):
            require_linear(
                lambda n, made=more: write_weights(path, more=made(n)),
                lambda: read_weights(path),
                size=SIZE // 2,
            )
    for name, values in (("state", STATE), ("places", [PLACE])):
        kept, found = changes_in_memory(values)
        for what, change in found:
            with naming(f"{name}, {what}"):
                require_linear(
                    lambda n, change=change, name=name, kept=kept: (
                        change(n),
                        write_weights(path, **{name: kept[0]}),
                    ),
                    lambda: read_weights(path),
                    size=SIZE // 2,
                )
