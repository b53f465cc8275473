"""A file of a run that is damaged or lost is named, before anything is written."""

import errno
import json
import math
import os
import re
import resource
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm import cli
from keras_addnorm.data import Tokenizer, TokenizerPair
from keras_addnorm.decoding import Lexicon
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.runs import RunConfig, RunDirectory, UserError
from keras_addnorm.runs import train as train_module
from keras_addnorm.runs.checks_before_training import require_place_to_go_on
from keras_addnorm.runs.errors import as_user_errors, system_errors_as_user_errors
from keras_addnorm.runs.export import _scores
from keras_addnorm.runs.resuming import place_to_go_on
from keras_addnorm.runs.text_data import (
    digest_of_tokenizers,
    load_or_train_tokenizers,
    save_tokenizers,
)
from keras_addnorm.runs.train import finish, train
from keras_addnorm.runs.trained_run import digest_of_run, load_run, save_model_config
from keras_addnorm.runs.weight_files import save_average, save_best_weights
from keras_addnorm.training.checkpoint_file import TrainingState, save_checkpoint
from keras_addnorm.training.resume import Checkpoints, TrainingPosition

PAIRS = [("a small house", "ein kleines Haus"), ("a small mouse", "eine kleine Maus")]
SETTINGS = {
    "tokenizer": {"vocabulary_size": 22},
    "model": {
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "hidden_dim": 8,
        "intermediate_dim": 12,
        "num_heads": 2,
        "max_length": 9,
    },
}
FILES = ("config.toml", "model.json", "tokenizer/tokenizer.model", "best.weights.h5")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small run as a training leaves it."""
    directory = RunDirectory(tmp_path_factory.mktemp("runs") / "whole")
    config = RunConfig.from_dict(SETTINGS)
    tokenizers = TokenizerPair.train(PAIRS, vocabulary_size=22, kind="bpe")
    sizes = dict.fromkeys(("source_vocabulary_size", "target_vocabulary_size"), 22)
    model = Seq2SeqConfig.preset("tiny", **sizes, **SETTINGS["model"], share_embeddings=True)
    directory.write_config(config)
    save_model_config(model, directory)
    save_tokenizers(tokenizers, directory)
    save_best_weights(Seq2SeqTransformer(model), directory)
    directory.write_log([{"epoch": 0, "val_loss": 3.0}])
    directory.write_scores({"test": {"cased": {"bleu": 1.0}}})
    return directory


@pytest.fixture
def run(whole, tmp_path):
    return RunDirectory(shutil.copytree(whole.path, tmp_path / "run"))


def flip(path, share=0.5):
    content = bytearray(path.read_bytes())
    content[int(share * len(content))] ^= 1
    path.write_bytes(content)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_weights_that_are_no_numbers_are_named(run):
    model = load_run(run).model
    kernel = model.decoder.layers[0].feed_forward.output_projection.kernel
    kernel.assign(np.full(kernel.shape, np.nan, "float32"))
    save_best_weights(model, run)
    words = (
        f"{run.path}/best.weights.h5' are not to be used.*NaN or infinite.* in 1 of .*{kernel.path}"
    )
    with pytest.raises(UserError, match=words):
        load_run(run)


def test_translations_with_a_shortlist_depend_on_the_lexicon(run):
    sizes = dict.fromkeys(("source_vocabulary_size", "target_vocabulary_size"), 22)
    config = run.read_config()
    listed = config.replace({"evaluation.shortlist": 11})
    found = []
    for target in (7, 9):
        with run.manifest.rewriting(run.lexicon):
            Lexicon.estimate([([5, 2], [target, 2])], **sizes).save(run.lexicon)
        found.append([digest_of_run(run, one) for one in (config, listed)])
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]


def test_every_file_that_a_run_needs_has_a_digest(run):
    listed = run.manifest.read().keys()
    assert listed == {*FILES, "log.csv", "scores.json"}
    load_run(run)
    assert not list(run.path.rglob(".*"))


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named(run, name):
    flip(run.path / name)
    before = contents(run.path)
    with pytest.raises(UserError, match=rf"{name}' is damaged: it is not what was written.*Copy"):
        load_run(run)
    (run.path / name).unlink()
    with pytest.raises(UserError, match=name.split("/")[-1]):
        load_run(run)
    del before[run.path / name]
    assert contents(run.path) == before


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", [b"", b"\xff\x00 no such file", None])
def test_without_digests_as_well_what_cannot_be_read_is_named(run, name, text):
    """As in a run of an earlier version, and with --no-verify."""
    path = run.path / name
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 3] if text is None else text)
    unchecked = RunDirectory(run.path, verify=False)
    # A part of a vocabulary can be one, which belongs to no model then.
    with pytest.raises(UserError, match=rf"{name}|tokenizer' and the model in .*together"):
        load_run(unchecked)
    run.manifest.path.unlink()
    with pytest.raises(UserError, match=rf"{name}|tokenizer' and the model in .*together"):
        load_run(run)


def _reject(run):
    with pytest.raises(UserError) as error:
        load_run(RunDirectory(run.path, verify=False))
    assert len(str(error.value)) < 700
    return str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"num_encoder_layers": 1},
        {"num_decoder_layers": 1},
        {"norm": "none"},
        {"pruned_sublayers": ["decoder/1/feed_forward"]},
    ],
)
def test_a_part_of_the_weights_is_not_passed_over(run, change):
    model = json.loads(run.model.read_text()) | {"num_encoder_layers": 2, "num_decoder_layers": 2}
    save_best_weights(Seq2SeqTransformer(Seq2SeqConfig.from_dict(model)), run)
    run.model.write_text(json.dumps(model))
    assert load_run(RunDirectory(run.path, verify=False)).model.config.num_encoder_layers == 2
    run.model.write_text(json.dumps(model | change))
    assert re.search(r"they hold [\d,]+ numbers, and that has [\d,]+\.", _reject(run))


@pytest.mark.parametrize("dtype", ["int8", "bool", "complex64", "S9"])
def test_arrays_of_another_type_are_no_weights(run, dtype):
    with h5py.File(run.best_weights, "r+") as file:
        names = []
        file.visit(lambda name: names.append(name) if name.endswith("_projection/vars/0") else None)
        content = file[names[0]][()]
        del file[names[0]]
        file[names[0]] = content.astype(dtype)
    assert f"in them is of the type {np.dtype(dtype)}" in _reject(run)


def test_weights_of_a_checkpoint_are_weights(run):
    model = load_run(run).model
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    save_checkpoint(model, run.best_weights, TrainingState(epoch=1))
    found = load_run(RunDirectory(run.path, verify=False)).model
    for one, other in zip(found.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("intermediate_dim", 10**7),
        ("head_dim", 10**7),
        ("num_encoder_layers", 9999),
        ("positions", {"name": "t5", "num_buckets": 2 * 10**6, "max_distance": 10**6 + 1}),
        ("self_attention", {"name": "average_attention", "intermediate_dim": 10**8}),
    ],
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_a_model_is_made(run, name, size):
    """As of a run from somebody else, whose digests are right."""
    settings = json.loads(run.model.read_text())
    with run.manifest.rewriting(run.model):
        run.model.write_text(json.dumps({**settings, name: size}))
    with pytest.raises(UserError, match=r"model\.json' is not that of the weights '.*weights\.h5'"):
        load_run(run)


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.toml", b"a = " + DEEP),
        ("config.toml", b"seed = " + b"1" * 5000),
        ("model.json", DEEP),
        ("tokenizer/tokenizer.model", b'{"name": ' + DEEP),
        ("tokenizer/text_format.json", DEEP),
    ],
)
def test_what_is_nested_too_deeply_is_named(run, name, text):
    run.manifest.path.unlink()
    (run.path / name).write_bytes(text)
    with pytest.raises(UserError, match=name.split("/")[-1]):
        load_run(run)
    with pytest.raises(UserError, match=r"scores.json' are damaged: it is nested too deeply"):
        (run.path / "scores.json").write_bytes(DEEP)
        run.read_scores()


@pytest.mark.parametrize("field", ["scheme", "norm", "activation"])
def test_a_name_that_nobody_has_registered_here_is_no_damage(run, field):
    with run.manifest.rewriting(run.model):
        values = {**json.loads(run.model.read_text()), field: "mine"}
        run.model.write_text(json.dumps(values))
    remedy = r"import the module that registers it, and call keras_addnorm\.cli\.main"
    with pytest.raises(
        UserError, match=rf"no such .*'mine('|'\. .*\?)\)\. Expected the .*{remedy}"
    ):
        load_run(run)


def test_a_change_that_is_meant_is_taken_with_no_verify(run):
    text = run.config.read_text().replace("num_beams = 4", "num_beams = 3")
    run.config.write_text(text)
    with pytest.raises(UserError, match=r"config.toml' is damaged.*--no-verify"):
        run.read_config()
    assert RunDirectory(run.path, verify=False).read_config().evaluation.num_beams == 3
    run.manifest.path.unlink()
    assert run.read_config().evaluation.num_beams == 3


def test_a_lost_mean_is_not_silently_the_best_epoch(run):
    with run.manifest.rewriting(run.averaged_weights):
        shutil.copy(run.best_weights, run.averaged_weights)
    run.averaged_weights.unlink()
    with pytest.raises(UserError, match=r"averaged.weights.h5' is missing"):
        load_run(run)
    RunDirectory(run.path, verify=False).check(run.averaged_weights)


@pytest.mark.parametrize(
    ("name", "text", "reads"),
    [
        ("log.csv", "epoch,val_loss\n0,three\n", RunDirectory.read_log),
        ("log.csv", "epocg,val_loss\n0,3\n", RunDirectory.read_log),
        ("log.csv", f"epoch{',x' * 1000}\n0\n", RunDirectory.read_log),
        ("log.csv", "epoch,val_loss\n1e999,3\n", RunDirectory.read_log),
        ("log.csv", "epoch,val_loss\n-1,3\n", RunDirectory.read_log),
        ("scores.json", "{", RunDirectory.read_scores),
        ("scores.json", "[]", RunDirectory.read_scores),
    ],
)
def test_logs_and_scores_that_cannot_be_read_are_named(run, name, text, reads):
    (run.path / name).write_text(text)
    with pytest.raises(UserError, match=rf"{name}' is damaged: it is not what was"):
        reads(run)
    with pytest.raises(UserError, match=rf"{name}' (is|are) damaged: .*Expected"):
        reads(RunDirectory(run.path, verify=False))


def test_scores_of_evaluations_that_end_at_once(run, monkeypatch):
    """Each adds its own to what the others have written."""
    original = RunDirectory.read_scores

    def read_slowly(self):
        found = original(self)
        threading.Event().wait(0.02)
        return found

    monkeypatch.setattr(RunDirectory, "read_scores", read_slowly)
    splits = [f"test[{index}:]" for index in range(5)]
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda split: run.add_scores(split, {"cased": {"bleu": 2.0}}), splits))
    assert original(run).keys() == {"test", *splits}
    assert not list(run.path.glob(".*"))


def main(capsys, *arguments):
    status = cli.main([*map(str, arguments)])
    return status, capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_an_empty_configuration_is_refused_and_stays(run, capsys, command):
    """Once its defaults, which are the demo's settings, were written in its place."""
    run.config.write_text("")
    run.manifest.path.unlink()
    before = contents(run.path)
    status, said = main(capsys, command, "--run-dir", run.path)
    assert status == 2
    assert "config.toml' is not whole: it has no data, source, target" in said
    assert contents(run.path) == before


def test_a_configuration_that_is_cut_off_is_refused(run):
    run.manifest.path.unlink()
    whole = run.config.read_text()
    for line in ("source", "[training]", "seed", "[evaluation]", "samples"):
        run.config.write_text(whole[: whole.index(f"\n{line}") + 1])
        with pytest.raises(UserError, match=r"is not whole: it has no"):
            run.read_config()
    run.config.write_text(whole.replace("[tokenizer]", "[tokeniser]"))
    with pytest.raises(UserError, match=r"is not whole: it has no tokenizer.kind"):
        run.read_config()


@pytest.mark.parametrize("resume", [(), ("--resume",)])
def test_a_lost_configuration_is_not_that_of_the_demo(run, capsys, resume):
    run.config.unlink()
    before = contents(run.path)
    status, said = main(capsys, "train", "--run-dir", run.path, *resume)
    assert status == 2 and "holds parts of a run, and its 'config.toml' is missing" in said
    with pytest.raises(UserError, match=r"its 'config.toml' is missing"):
        train(RunConfig.from_dict(SETTINGS), run, verbose=0)
    assert contents(run.path) == before


@pytest.mark.parametrize("name", ["config.toml", "log.csv", "standard_input"])
def test_a_training_writes_nothing_before_its_files_are_checked(run, name):
    with run.manifest.rewriting(run.standard_input):
        run.standard_input.write_text("a\tb\n")
    flip(run.path / name)
    before = contents(run.path)
    with pytest.raises(UserError, match=rf"{name}' is damaged"):
        train(RunConfig.from_dict(SETTINGS), run, verbose=0)
    assert contents(run.path) == before


def test_a_configuration_that_is_refused_takes_its_tokenizers_with_it(monkeypatch, tmp_path):
    """Else the next one, of another size say, would find them."""
    pairs = SimpleNamespace(training=PAIRS, notes=())
    monkeypatch.setattr("keras_addnorm.runs.prepare.run_pairs", lambda config: pairs)
    config = RunConfig.from_dict(SETTINGS)
    directory = RunDirectory(tmp_path / "run")

    def fails(*_):
        assert directory.has_tokenizers()
        raise UserError("enough")

    monkeypatch.setattr("keras_addnorm.runs.prepare.model_config", fails)
    with pytest.raises(UserError, match="enough"):
        train(config, directory, say=lambda line: None, verbose=0)
    assert list(directory.path.iterdir()) == []


def tokenizers_of(run, digest, pairs=PAIRS):
    config = RunConfig.from_dict(SETTINGS)
    return load_or_train_tokenizers(config, run, pairs, digest=digest)


def test_a_checkpoint_knows_its_tokenizers(run):
    digest = digest_of_tokenizers(run.tokenizer)
    before = tokenizers_of(run, digest)
    assert tokenizers_of(run, "") == tokenizers_of(run, None) == before  # an earlier checkpoint
    others = TokenizerPair.train([(b, a[::-1]) for a, b in PAIRS], vocabulary_size=22)
    save_tokenizers(others, run)
    assert digest_of_tokenizers(run.tokenizer) != digest
    with pytest.raises(UserError, match=r"are not those that the checkpoints of this run belong"):
        tokenizers_of(run, digest)
    assert tokenizers_of(RunDirectory(run.path, verify=False), digest) == others


def test_lost_tokenizers_are_trained_again_only_to_the_same_ones(run):
    digest, before = digest_of_tokenizers(run.tokenizer), tokenizers_of(run, None)
    shutil.rmtree(run.tokenizer)
    others = [(b, a[::-1]) for a, b in PAIRS]
    for given, words in ((digest, "others come out"), ("", "do not say whether they are the same")):
        with pytest.raises(UserError, match=rf"tokenizers of the run .* are lost.*{words}"):
            tokenizers_of(run, given, others)
        assert not run.tokenizer.exists()
    unchecked = RunDirectory(run.path, verify=False)
    with pytest.raises(UserError, match="others come out"):
        tokenizers_of(unchecked, digest, others)
    assert tokenizers_of(run, digest) == before
    run.check(run.tokenizer)
    shutil.rmtree(run.tokenizer)
    assert tokenizers_of(unchecked, "") == before


def test_a_tokenizer_that_is_damaged_is_a_sentence_of_ours(tmp_path):
    """SentencePiece, which is C++, has errors of its own for some of these."""
    path = tmp_path / "tokenizer.model"
    Tokenizer.train([text for pair in PAIRS for text in pair], vocabulary_size=22).save(path)
    whole = path.read_bytes()
    for byte in range(0, len(whole), 5):
        content = bytearray(whole)
        content[byte] ^= 1 << byte % 8
        path.write_bytes(content)
        try:
            TokenizerPair.load(tmp_path)
        except ValueError as error:
            assert "tokenizer.model" in str(error)


def model():
    keras.utils.set_random_seed(3)
    found = keras.Sequential([keras.Input((3,)), keras.layers.Dense(50), keras.layers.Dense(1)])
    found.compile("adam", "mse", run_eagerly=True)
    found.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0)
    return found


@pytest.fixture(scope="module")
def trained():
    return model()


@pytest.fixture
def checkpoints(run, trained):
    """A run with checkpoints of three epochs."""
    for epoch in (1, 2, 3):
        path = run.checkpoints / f"epoch-{epoch:04d}.weights.h5"
        save_checkpoint(trained, path, TrainingState(epoch, tokenizers="0123"))
    return run


def test_where_every_checkpoint_is_damaged_no_training_begins_anew(checkpoints):
    said = []
    files = sorted(checkpoints.checkpoints.iterdir())
    for path in files[1:]:
        os.truncate(path, 999)
    found, state = place_to_go_on(checkpoints, said.append)
    assert (found, state) == (files[0], TrainingState(1, tokenizers="0123"))
    assert [line.split(" is damaged")[0].split("/")[-1] for line in said] == [
        "epoch-0003.weights.h5",
        "epoch-0002.weights.h5",
    ]
    os.truncate(files[0], 999)
    with pytest.raises(UserError, match=r"All checkpoints in .* are damaged.*--start-from"):
        place_to_go_on(checkpoints, said.append)
    shutil.rmtree(checkpoints.checkpoints)
    assert place_to_go_on(checkpoints, said.append) == (None, TrainingState(0))


def test_a_training_does_not_begin_anew_in_the_place_of_weights(run, checkpoints, tmp_path):
    require_place_to_go_on(checkpoints)
    require_place_to_go_on(RunDirectory(tmp_path / "new"))
    shutil.rmtree(run.checkpoints)
    before = contents(run.path)
    for settings in ({}, {"training": {"start_from": str(run.path)}}):
        with pytest.raises(UserError, match=r"no checkpoint to go on.*train NEW --start-from "):
            train(RunConfig.from_dict(SETTINGS | settings), run, verbose=0)
    assert contents(run.path) == before
    # Killed between the first epoch's weights and its checkpoint; then checkpoints that are lost.
    run.checkpoints.mkdir()
    require_place_to_go_on(run)
    run.write_log([{"epoch": 0, "val_loss": 3.0}, {"epoch": 1, "val_loss": 2.0}])
    with pytest.raises(UserError, match=r"no checkpoint to go on"):
        require_place_to_go_on(run)


def test_a_training_has_a_folder_of_checkpoints_before_it_has_weights(tmp_path):
    position = TrainingPosition(SimpleNamespace(start_at=None), 1)
    Checkpoints(tmp_path / "run" / "checkpoints", position).on_train_begin()
    assert (tmp_path / "run" / "checkpoints").is_dir()


def finished(run, paths, last):
    """The end of a training whose last epochs have these checkpoints."""
    said = []
    config = RunConfig.from_dict(SETTINGS).replace({"training.average_last": last})
    recorder = SimpleNamespace(rows=[], best=SimpleNamespace(epochs=lambda rows: []))
    prepared = SimpleNamespace(config=config, directory=run, say=said.append)
    finish(prepared, SimpleNamespace(recorder=recorder, checkpoints=SimpleNamespace(paths=paths)))


def test_a_mean_of_epochs_reads_no_damaged_checkpoint(checkpoints):
    paths = sorted(checkpoints.checkpoints.iterdir())
    with h5py.File(paths[0], "r+") as file:
        file["layers/dense/vars/0"][0, 0] += 1
    message = r"The mean of the last 3 epochs is not: The checkpoint '.*epoch-0001.weights.h5' is d"
    with pytest.raises(UserError, match=message):
        finished(checkpoints, paths, 3)
    assert not checkpoints.averaged_weights.exists()
    assert "averaged.weights.h5" not in checkpoints.manifest.read()
    finished(RunDirectory(checkpoints.path, verify=False), paths, 3)
    first = checkpoints.averaged_weights.read_bytes()
    finished(checkpoints, paths[1:], 3)
    assert checkpoints.averaged_weights.read_bytes() != first
    checkpoints.check(checkpoints.averaged_weights)
    # A mean is a file that means can be taken of.
    save_average(2 * [checkpoints.averaged_weights], checkpoints.path / "two.weights.h5")
    finished(checkpoints, paths, 1)
    assert not checkpoints.averaged_weights.exists()
    checkpoints.check(checkpoints.averaged_weights)


def of_hdf5(number, folder):
    """What HDF5 says where a file cannot be made."""
    return OSError(
        number,
        f"Unable to synchronously create file (unable to open file: name = '{folder}/x', "
        f"errno = {number}, error message = '{os.strerror(number)}')",
    )


def of_the_system(number, folder):
    return OSError(number, os.strerror(number), f"{folder}/x")


@pytest.mark.parametrize("make", [of_hdf5, of_the_system])
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "is full .*make room, and the same command goes on"),
        (errno.EDQUOT, "is full .*make room"),
        (errno.EFBIG, "would become larger than it may be .*ulimit -f"),
        (errno.EROFS, "can only be read .*make it writable"),
        (errno.EACCES, "does not let this user .*change its permissions"),
        (errno.ENOENT, "is gone, or is no folder .*put it back"),
        (errno.EEXIST, "is gone, or is no folder"),
        (errno.EIO, "has an error .*dmesg"),
        (errno.EMFILE, "too many files open .*ulimit -n"),
        (errno.EISDIR, "is a folder, where a file is expected"),
        (errno.ELOOP, "is a link that leads back to itself"),
        (errno.ENAMETOOLONG, "is too long .*choose a shorter one"),
    ],
)
def test_what_a_disk_says_in_the_middle_of_a_training_is_a_sentence(
    monkeypatch, tmp_path, make, number, words
):
    def fails(*_):
        raise make(number, tmp_path)

    monkeypatch.setattr(train_module, "prepare", fails)
    with pytest.raises(UserError, match=words) as caught:
        train(RunConfig(), tmp_path, verbose=0)
    assert str(tmp_path) in str(caught.value)
    assert "The checkpoints written so far are whole" in str(caught.value)


def test_a_folder_that_is_gone_is_a_sentence(monkeypatch, tmp_path):
    """Whatever was to be done there: Python says no more than that something is not there."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for guard in (as_user_errors, system_errors_as_user_errors):
        for action in (lambda: os.mkdir("run"), lambda: os.path.abspath("run")):
            with pytest.raises(UserError, match=r"^The current folder is gone: "), guard():
                action()


@pytest.mark.parametrize(
    "scores", [5, [], {"test": 5}, {"test": {}}, {"test": {"cased": {"bleu": math.nan}}}]
)
def test_scores_that_are_none_are_named(tmp_path, scores):
    run = RunDirectory(tmp_path)
    run.scores.write_text(json.dumps(scores))
    with pytest.raises(UserError, match=r"^The scores '.*scores.json' are damaged: it has no"):
        run.read_scores()


@pytest.mark.parametrize("found", [{}, {"sentences": "x"}, {"sentences": None}])
def test_scores_that_a_page_cannot_say_are_named(found):
    cased = {"bleu": 1.0, "chrf": 2.0}
    assert _scores({"test": {"cased": cased, "sentences": 3}}).startswith("BLEU 1.0, chrF 2.0 on 3")
    with pytest.raises(UserError, match=r"^The scores of the split 'test' are not those"):
        _scores({"test": {"cased": cased, **found}})


def test_logits_that_are_no_numbers_are_a_sentence():
    """Weights of a run may be finite, and what is computed with them not."""
    with pytest.raises(UserError, match=r"^A logit was NaN"), as_user_errors():
        raise FloatingPointError("A logit was NaN or infinite at step 0 of the search.")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 3.55 PiB for an array"),
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes"),
    ],
)
def test_too_little_memory_is_a_sentence(monkeypatch, tmp_path, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(train_module, "prepare", fails)
    with pytest.raises(UserError, match=r"not enough memory \(.*\)\. The check.* smaller, or"):
        train(RunConfig(), tmp_path, verbose=0)


def test_a_full_disk_is_the_same_sentence_wherever_it_is_met():
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with (
        pytest.raises(UserError, match=r"disk of 'the output' is full .*make room"),
        as_user_errors(),
    ):
        raise full
    # TensorFlow's class for it is that of too little memory.
    said = "part-0.data; No space left on device [Op:SaveV2]"
    with pytest.raises(UserError, match=r"is full .*make room"), system_errors_as_user_errors():
        raise tf.errors.ResourceExhaustedError(None, None, said)
    with pytest.raises(UserError, match=r"^Is a directory: 'a'$"), as_user_errors():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), "a")


def test_names_that_no_disk_takes_are_a_sentence(tmp_path, capsys):
    for place in (tmp_path / ("x" * 999), tmp_path / "/".join(["y" * 200] * 30)):
        status, said = main(capsys, "translate", "a", "--run-dir", place)
        assert status == 2 and "is too long for the disk" in said


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/elsewhere/template.html"),
        RuntimeError("a fault of the program"),
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
    ],
)
def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch, tmp_path, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(train_module, "prepare", fails)
    with pytest.raises(type(error)):
        train(RunConfig(), tmp_path, verbose=0)


def test_a_real_limit_of_the_size_of_files(tmp_path, trained):
    path = tmp_path / "epoch-0001.weights.h5"
    save_checkpoint(trained, path, TrainingState(1))
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(UserError, match=r"would become larger than it may be .*ulimit -f"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), hard))
        try:
            with system_errors_as_user_errors(tmp_path):
                save_checkpoint(trained, path, TrainingState(2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {path.name: before}


def test_a_checkpoint_folder_that_is_no_folder_any_more(checkpoints, trained):
    shutil.rmtree(checkpoints.checkpoints)
    checkpoints.checkpoints.write_text("")
    with (
        pytest.raises(UserError, match=r"is no folder any more .*put it back, and the same com"),
        system_errors_as_user_errors(checkpoints.path),
    ):
        path = checkpoints.checkpoints / "epoch-0004.weights.h5"
        save_checkpoint(trained, path, TrainingState(4))


def test_other_commands_meet_a_full_disk_with_a_sentence(monkeypatch, run, capsys):
    def fails(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", str(run.scores))

    monkeypatch.setattr("keras_addnorm.runs.trained_run.load_run", fails)
    status, said = main(capsys, "evaluate", "--run-dir", run.path)
    assert status == 2
    assert "scores.json' is full" in said and "give the command again" in said
