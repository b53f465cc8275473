"""A pretrained model as a run: what every command takes."""

import json
import subprocess
import sys
import tracemalloc

import h5py
import numpy as np
import pytest

from keras_addnorm import cli, serving
from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.decoding import AveragePenalty, Beam, ForbiddenTokens
from keras_addnorm.interop import load_pretrained, make_random_folder
from keras_addnorm.runs import RunConfig, UserError
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.export import export
from keras_addnorm.runs.pretrained_run import import_pretrained, summary
from keras_addnorm.runs.trained_run import load_run, model_config
from keras_addnorm.runs.weight_files import save_best_weights, save_loaded_weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_random_folder("nllb", tmp_path_factory.mktemp("nllb") / "nllb")


FAMILIES = {
    "joey_nmt": "joey_nmt",
    "eole": {"name": "eole", "source_sentencepiece": "vocab.spm"},
}
LANGUAGES = {"source_language": "eng_Latn", "target_language": "deu_Latn"}


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """NLLB's kind of folder for one direction, as a run."""
    path = tmp_path_factory.mktemp("runs") / "nllb"
    settings = {"data": "pairs.tsv", "evaluation.batch_size": 2}
    loaded = import_pretrained(str(folder), path, settings, **LANGUAGES)
    return path, loaded


def test_a_run_is_the_model(run, folder):
    path, loaded = run
    found = load_run(path)
    assert found.model.config == load_pretrained(folder).model.config
    for weight, other in zip(loaded.model.weights, found.model.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), to_numpy(other))
    assert found.tokenizers == loaded.tokenizers
    assert found.tokenizers.text_format.target_prefix == ("deu_Latn",)
    assert (found.config.data, found.config.evaluation.batch_size) == ("pairs.tsv", 2)
    # Settings and tokenizers lead to the same model: a training can start from it.
    assert model_config(found.config, found.tokenizers) == found.model.config
    assert "Licence: the folder names none" in summary("nllb", loaded, path)
    assert "nllb: m2m_100, 1" in summary("nllb", loaded, path)


@pytest.mark.parametrize(
    "more", [[], ["--resume"], ["--start-from", "RUN"], ["--data", "shop.tsv", "--epochs", "1"]]
)
def test_a_training_in_the_place_of_a_run_that_was_imported(run, more, capsys):
    """Once it began anew, without a word, and replaced the weights."""
    path, _ = run
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    more = [str(path) if word == "RUN" else word for word in more]
    assert cli.main(["train", "--run-dir", str(path), *more]) == 2
    assert f"keras-addnorm train NEW --start-from {path}" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize(
    "name", ["marian", "t5_v1_1", "byt5", "bart", "mbart", "marian_npz", "joey_nmt", "eole"]
)
def test_settings_of_every_family_lead_to_its_model(name, tmp_path):
    make_random_folder(name, tmp_path / "folder")
    languages = {"source_language": "en_XX", "target_language": "de_DE"} if name == "mbart" else {}
    loaded = import_pretrained(
        str(tmp_path / "folder"), tmp_path / "run", family=FAMILIES.get(name), **languages
    )
    found = load_run(tmp_path / "run")
    assert model_config(found.config, found.tokenizers) == found.model.config
    searches = found.config.evaluation.search().strategy, loaded.generation.strategy
    divisors = [float(to_numpy(search.length_penalty.divisor(7))) for search in searches]
    assert divisors[0] == pytest.approx(divisors[1])


def test_a_search_of_the_settings():
    config = RunConfig.from_dict(
        {
            "evaluation": {
                **{"num_beams": 5, "length_penalty": 0.8, "length_penalty_kind": "average"},
                **{"beam_stopping": "current_length"},
            }
        }
    )
    search = config.evaluation
    expected = Beam(5, AveragePenalty(0.8), early_stopping="current_length")
    assert search.search().strategy == expected
    assert search.search(5).strategy == Beam(5, AveragePenalty(0.8), 5, "current_length")
    assert RunConfig().evaluation.search().strategy == Beam(4, 0.6)


def test_what_a_run_searches_without_is_said(tmp_path):
    folder = make_random_folder("marian", tmp_path / "folder")
    path = folder / "generation_config.json"
    settings = {"do_sample": True, "bad_words_ids": [[0], [5]], "suppress_tokens": [7]}
    path.write_text(json.dumps(settings))
    loaded = import_pretrained(str(folder), tmp_path / "run")
    said = summary("opus", loaded, tmp_path / "run")
    assert "Not followed in searches: do_sample = True." in said
    # The end is no bad word, as in transformers; the others are a setting of the run.
    assert said.count("Not followed") == 1
    evaluation = RunDirectory(tmp_path / "run").read_config().evaluation
    assert evaluation.forbidden_ids == (5, 7)
    assert ForbiddenTokens((5, 7)) in evaluation.search().constraints


def test_what_a_folder_does_not_say(tmp_path, monkeypatch):
    """A length is transformers' own then; a licence goes from the folder to the export."""
    folder = make_random_folder("t5_v1_1", tmp_path / "folder")
    (folder / "generation_config.json").write_text("{}")
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    loaded = import_pretrained(str(folder), tmp_path / "run")
    said = summary("t5", loaded, tmp_path / "run")
    assert "20 tokens at most, as the folder does not say how many: --max-length sets it." in said
    assert "Licence: apache-2.0." in said
    run = load_run(tmp_path / "run")
    cards = []
    monkeypatch.setattr(serving, "export_saved_model", lambda *_, card, **__: cards.append(card))
    export(run, tmp_path / "export")
    export(run, tmp_path / "export", licence="MIT")
    assert [card["licence"] for card in cards] == ["apache-2.0", "MIT"]


def test_a_family_with_what_else_it_needs(tmp_path, capsys):
    folder = make_random_folder("eole", tmp_path / "eole", num_encoder_layers=1)
    arguments = ["import", str(folder), "--run-dir", str(tmp_path / "run"), "--family"]
    assert cli.main([*arguments, "eole"]) == 2
    assert "pass --family as a table" in capsys.readouterr().err
    assert cli.main([*arguments, '{name = "eole", source_sentencepiece = "vocab.spm"}']) == 0
    assert load_run(tmp_path / "run").tokenizers.text_format.source_suffix == ()


def test_what_a_folder_leaves_open_is_said_by_flags(tmp_path):
    """A setting of a fork, the words before each text, and where targets of mBART start."""
    t5 = make_random_folder("t5", tmp_path / "t5", num_encoder_layers=1)
    settings = json.loads((t5 / "config.json").read_text())
    (t5 / "config.json").write_text(json.dumps({**settings, "my_idea": 7}))
    arguments = ["import", str(t5), "--run-dir", str(tmp_path / "run"), "--text-prefix", ""]
    assert cli.main(arguments) == 2
    assert cli.main([*arguments, "--ignore", "my_idea"]) == 0
    assert load_run(tmp_path / "run").tokenizers.text_format.text_prefix == ""
    mbart = make_random_folder("mbart", tmp_path / "mbart", num_encoder_layers=1)
    (mbart / "tokenizer_config.json").unlink()
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((mbart / name).read_text())
        settings.pop("decoder_start_token_id")
        (mbart / name).write_text(json.dumps(settings))
    arguments = ["import", str(mbart), "--run-dir", str(tmp_path / "ro")]
    assert cli.main([*arguments, "--source-language", "en_XX"]) == 2
    languages = ["--source-language", "en_XX", "--target-language", "ro_RO"]
    assert cli.main([*arguments, *languages]) == 0
    run = load_run(tmp_path / "ro")
    assert run.tokenizers.target.pieces[run.model.config.start_id].text == "ro_RO"


def datasets_of(path):
    found = {}

    def note(name, each):
        if isinstance(each, h5py.Dataset):
            found[name] = each[()]

    with h5py.File(path) as file:
        file.visititems(note)
    return found


def test_a_loaded_model_is_written_a_part_of_a_weight_at_a_time(folder, tmp_path):
    """The same file as Keras writes, without a copy of the largest weight."""
    wide = make_random_folder("nllb", tmp_path / "wide", vocabulary_size=200_000)
    model = load_pretrained(wide).model
    directories = [RunDirectory(tmp_path / name) for name in ("whole", "parts")]
    save_best_weights(model, directories[0])
    tracemalloc.start()
    try:
        save_loaded_weights(model, directories[1])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    table = 4 * 200_000 * model.config.hidden_dim
    assert peak < table / 2
    found = [datasets_of(directory.best_weights) for directory in directories]
    assert found[0].keys() == found[1].keys() and len(found[0]) == len(model.weights)
    for name, values in found[0].items():
        assert values.dtype == found[1][name].dtype
        np.testing.assert_array_equal(values, found[1][name], err_msg=name)
    assert all(np.isfinite(to_numpy(weight)).all() for weight in model.weights)


def test_what_cannot_be_imported(folder, tmp_path):
    with pytest.raises(UserError, match=r"needs the source and the target language"):
        import_pretrained(str(folder), tmp_path / "run")
    with pytest.raises(UserError, match=r"has no piece 'german'"):
        import_pretrained(
            str(folder), tmp_path / "run", target_language="german", source_language="eng_Latn"
        )
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match=r"exists\. Expected the name of a new run directory"):
        import_pretrained(str(folder), tmp_path)
    with pytest.raises(UserError, match="There is no folder"):
        import_pretrained(str(tmp_path / "none"), tmp_path / "run")


def test_the_command(folder, tmp_path, capsys):
    arguments = ["import", str(folder), "--run-dir", str(tmp_path / "run")]
    languages = ["--source-language", "eng_Latn", "--target-language", "deu_Latn"]
    more = ["--data", "corpus", "--target", "fr", "--num-beams", "3"]
    assert cli.main([*arguments, *languages, *more]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"Run: {tmp_path / 'run'}"
    config = load_run(tmp_path / "run").config
    assert (config.data, config.target, config.evaluation.num_beams) == ("corpus", "fr", 3)
    # The folder's greedy search with more hypotheses, as `Pretrained.translate(num_beams=3)`.
    assert config.evaluation.search().strategy == load_pretrained(folder).generation.with_beams(3)
    elsewhere = [*arguments[:3], str(tmp_path / "other")]
    assert cli.main(elsewhere) == 2
    err = capsys.readouterr().err
    assert "as --source-language, and the other, as --target-language. Received: neither" in err
    assert cli.main(arguments) == 2
    assert "exists. Expected the name of a new folder" in capsys.readouterr().err


@pytest.mark.slow
def test_a_fine_tuning_with_lora_counts_no_padding(folder, run, tmp_path):
    """The padding of this model is 1, not 0: it counts in no loss."""
    path, _ = run
    pairs = [("A dog runs.", "Ein Hund")] * 16
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{s}\t{t}\n" for s, t in pairs))
    arguments = ["train", "--start-from", str(path), "--data", str(data), "--epochs", "3"]
    arguments += [
        "--validation",
        str(data),
        "--run-dir",
        str(tmp_path / "tuned"),
        "--no-jit-compile",
    ]
    arguments += ["--lora-rank", "2", "--warmup-steps", "2", "--peak-learning-rate", "0.01"]
    assert cli.main(arguments) == 0
    tuned = load_run(tmp_path / "tuned")
    rows = tuned.directory.read_log()
    assert rows[-1]["val_loss"] < rows[0]["val_loss"]
    # The loss of the log is that of the tokens alone.
    before = load_run(path)
    around = before.tokenizers.bound_format
    source, target = pairs[0]
    ids = [*around.target_prefix, *before.tokenizers.target.encode(target), around.end_id]
    row = around.source_row(before.tokenizers.source.encode(source))
    scores = tuned.model.score([row], [ids], jit_compile=False)
    per_token = -scores.token_log_probabilities[0].mean()
    assert tuned.model.config.pad_id == 1
    assert np.isclose(per_token, np.log(rows[-1]["val_perplexity"]), rtol=0.02)
    # Norms and biases stay; the weights of the run have what was learned.
    for weight, other in zip(before.model.weights, tuned.model.weights, strict=True):
        changed = abs(to_numpy(weight) - to_numpy(other)).max() > 0
        assert changed == (len(weight.shape) == 2), weight.path
    assert cli.main(["train", "--run-dir", str(tmp_path / "new"), "--lora-rank", "2"]) == 2


@pytest.mark.slow
def test_a_name_without_a_network_is_an_answer_within_seconds(tmp_path):
    """No such hub: the answer says what to do, and does not wait for a minute."""
    code = (
        "import time\nfrom keras_addnorm.interop.hub import find_checkpoint\n"
        "start = time.time()\n"
        "try:\n    find_checkpoint('Helsinki-NLP/opus-mt-en-de')\n"
        "except FileNotFoundError as error:\n    print(time.time() - start, error)\n"
    )
    environment = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "PATH": ""}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    seconds, _, text = found.stdout.partition(" ")
    assert "no model of that name could be fetched" in text, found.stderr
    assert "hf download Helsinki-NLP/opus-mt-en-de --local-dir FOLDER" in text
    assert float(seconds) < 30
