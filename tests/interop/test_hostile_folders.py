"""Values in the files of a checkpoint that no toolkit writes: read, or refused in a sentence."""

import json
import os
import shutil
from pathlib import Path

import hypothesis
import pytest
from hostile_loading import make_no_model, require_sentence
from hypothesis import strategies as st

from keras_addnorm.interop import load_pretrained, make_random_folder
from keras_addnorm.interop.families.text_files import read_yaml

FAMILIES = ("marian", "t5", "byt5", "m2m_100", "nllb", "mbart", "bart", "pegasus")
SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 1}
VALUES = [
    *(None, True, -1, 0, 7, 10**9, 10**18, 10**400, 1.5, 1e308, float("nan")),
    *("", "x", "x" * 10**6, "../../../x", "\x1b[2J", "\ud800", "a\0b"),
    *([], [1], ["x"], [[]], [None] * 1000, {}, {"x": 1}, {"x": {"x": 1}}, {"x": -1}, {"x": 10**9}),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of each family, made when it is first asked for."""
    made = {}

    def folder(family):
        if family not in made:
            path = tmp_path_factory.mktemp(family) / family
            made[family] = make_random_folder(family, path, **SMALL)
        return made[family]

    return folder


@pytest.fixture(autouse=True)
def no_model(monkeypatch):
    make_no_model(monkeypatch)


def places(value, path=()):
    """The places of a value of JSON, the whole among them; of long lists and dicts some."""
    yield path
    if isinstance(value, dict | list):
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        for key, each in items[:40] + items[-3:]:
            yield from places(each, (*path, key))


def put(value, path, new):
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


def hostile(folders, tmp_path_factory, data, families):
    original = folders(data.draw(st.sampled_from(families)))
    files = sorted(path.name for path in original.glob("*.json"))
    name = data.draw(st.sampled_from(files))
    content = json.loads((original / name).read_text())
    place = data.draw(st.sampled_from(list(places(content))))
    value = data.draw(st.sampled_from(VALUES))
    folder = tmp_path_factory.mktemp("hostile") / original.name
    shutil.copytree(original, folder)
    (folder / name).write_text(json.dumps(put(content, place, value)))
    require_sentence(folder, folder.name)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["generation_config.json", "config.json", "vocab.json"])
def test_a_pipe_is_refused_at_once(folders, tmp_path, name):
    folder = tmp_path / "marian"
    shutil.copytree(folders("marian"), folder)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(ValueError, match=f"{name}' is a pipe, which is read once"):
        load_pretrained(folder)


SETTINGS = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(hypothesis.HealthCheck),
}


@hypothesis.settings(max_examples=30, derandomize=True, **SETTINGS)
@hypothesis.given(data=st.data())
def test_any_value_of_marian_is_read_or_refused(folders, tmp_path_factory, data):
    hostile(folders, tmp_path_factory, data, FAMILIES[:1])


@pytest.mark.slow
@hypothesis.settings(max_examples=120, **SETTINGS)
@hypothesis.given(data=st.data())
def test_any_value_of_any_family_is_read_or_refused(folders, tmp_path_factory, data):
    hostile(folders, tmp_path_factory, data, FAMILIES)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("added_tokens.json", '{"xxx_Latn": 1000000000}', "has the id 1000000000, and the model"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"1000000000": {"content": "x"}}}',
         "has the id 1000000000, and the model"),
        ("vocab.json", '{"</s>": 1000000000}', "vocab"),
        ("generation_config.json", '{"max_length": 1000000, "num_beams": 1000000}',
         "num_beams = 1000000; expected at most"),
        ("config.json", '{"model_type": "marian", "d_model": 1000000000}', "config"),
    ],
)  # fmt: skip
def test_numbers_that_size_lists_are_refused(folders, tmp_path, name, content, said):
    folder = tmp_path / "marian"
    shutil.copytree(folders("marian"), folder)
    (folder / name).write_text(content)
    with pytest.raises(ValueError, match=said):
        load_pretrained(folder)
    require_sentence(folder, folder.name)


NESTED = "a: " + "[" * 60
# Ten of ten of ten of ten of ten of ten lists.
ALIASES = "a0: &a0 x\n" + "".join(
    f"a{n}: &a{n} [{', '.join(10 * [f'*a{n - 1}'])}]\n" for n in range(1, 7)
)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (NESTED, "nested too deeply"),
        (ALIASES, "its aliases stand for too many values"),
        ("a: &a [x, *a]", "a value in it holds itself"),
        ("a: " + "x" * (1 << 17), "it has more than 131,072 characters"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("a: " + "9" * 5000, "Exceeds the limit"),
    ],
)
def test_yaml_without_an_end_is_refused(content, said):
    with pytest.raises(ValueError, match=rf"'a/config.yaml' is no YAML: .*{said}"):
        read_yaml(Path("a/config.yaml"), content, "A model")


def test_aliases_of_yaml_are_their_values():
    found = read_yaml(Path("a/config.yaml"), "a: &a {b: [1, 2]}\nc: *a\nd: [*a]\n", "A model")
    assert found == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}, "d": [{"b": [1, 2]}]}
