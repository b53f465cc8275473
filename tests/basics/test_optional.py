"""A missing package is named in one sentence, with the extra that brings it, at every door."""

import importlib
import json
import sys
import tomllib
import types
from pathlib import Path

import numpy as np
import pytest

from keras_addnorm import cli
from keras_addnorm.basics import optional
from keras_addnorm.basics.optional import install_line, require_extra, require_installed

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def sentence(purpose, package, extra):
    assert extra in EXTRAS
    return (
        f"{purpose} needs {package!r}, which is not installed. "
        f"Install it with: {install_line(extra)}"
    )


def test_what_is_installed_is_returned_in_order():
    found = require_extra("serve", "The server", "json", "importlib.resources")
    assert found == (
        importlib.import_module("json"),
        importlib.import_module("importlib.resources"),
    )


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(ImportError) as caught:
        require_extra("report", "A page", "json", "plotly")
    assert str(caught.value) == sentence("A page", "plotly", "report")
    assert caught.value.name == "plotly"


def test_what_is_missing_is_named_before_anything_is_imported(monkeypatch):
    require_installed("serve", "The server", "json", "antigravity")
    assert "antigravity" not in sys.modules
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(ImportError) as caught:
        require_installed("report", "A page", "json", "plotly")
    assert str(caught.value) == sentence("A page", "plotly", "report")


def test_the_line_that_installs_is_that_of_the_readme_in_a_clone(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert install_line("data") == 'pip install -c constraints.txt -e ".[data]"'
    monkeypatch.chdir(tmp_path)
    assert install_line("data") == f"pip install -c {ROOT}/constraints.txt -e '{ROOT}[data]'"


@pytest.mark.parametrize("is_there", [True, False])
def test_a_package_that_was_installed_remembers_its_clone(monkeypatch, tmp_path, is_there):
    clone = tmp_path / "my clone"
    clone.mkdir()
    if is_there:
        (clone / "constraints.txt").touch()
    installed = types.SimpleNamespace(
        read_text=lambda name: json.dumps({"url": clone.as_uri(), "dir_info": {}})
    )
    monkeypatch.setattr(optional, "__file__", "/site-packages/keras_addnorm/basics/optional.py")
    monkeypatch.setattr(optional.importlib.metadata, "distribution", lambda name: installed)
    from_clone = f"pip install -c '{clone}/constraints.txt' '{clone}[data]'"
    expected = from_clone if is_there else "pip install 'keras-addnorm[data]'"
    assert install_line("data") == expected


@pytest.mark.parametrize("text", [None, "{", "{}", '{"url": "https://example.org/x.whl"}'])
def test_a_package_of_a_registry_is_installed_by_its_name(monkeypatch, text):
    installed = types.SimpleNamespace(read_text=lambda name: text)
    monkeypatch.setattr(optional, "__file__", "/site-packages/keras_addnorm/basics/optional.py")
    monkeypatch.setattr(optional.importlib.metadata, "distribution", lambda name: installed)
    assert install_line("data") == "pip install 'keras-addnorm[data]'"


def test_a_package_that_cannot_be_imported_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("from json import no_such_name")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="needs a package: cannot import name 'no_such_name'"):
        require_extra("report", "A page", "half_installed")


def load_named(folder):
    from keras_addnorm.data import load_translation

    load_translation("wmt14_translate/de-en", data_dir=folder)


def load_demo(folder):
    from keras_addnorm.data import load_translation

    load_translation("demo/en-de")


def count_lines(folder):
    from keras_addnorm.data import line_reports

    line_reports("wmt14_translate/de-en", data_dir=folder)


def build_demo(folder):
    from keras_addnorm.data import demo_builder

    demo_builder("de", data_dir=folder)


def make_demo_pairs(folder):
    from keras_addnorm.data import demo_pairs

    next(demo_pairs("de"))


def start_server(folder):
    from keras_addnorm.serving.server import Server, Settings

    Server(Settings(folder))


def export_by(name):
    def export(folder):
        from keras_addnorm import interop

        model = object()  # The package is missed before anything else is looked at.
        getattr(interop, name)(model, *([None] if name == "export_ctranslate2" else []), folder)

    return export


def look_a_model_up(folder):
    from keras_addnorm.interop import load_pretrained

    load_pretrained("maker/model")


def read_marians_file(folder):
    from keras_addnorm.interop import load_pretrained

    settings = np.frombuffer(b"type: transformer\0", np.int8)
    np.savez(folder / "model.npz", **{"special:model.yml": settings})
    load_pretrained(folder / "model.npz", tokenizers=None)


_TFDS = "Loading sentence pairs with TensorFlow Datasets"
_HUB = "'maker/model' is no folder here. Looking it up at huggingface.co"
_DOORS = [
    (load_named, "tensorflow_datasets", _TFDS, "tfds"),
    (load_named, "importlib_resources", _TFDS, "tfds"),
    (count_lines, "tensorflow_datasets", _TFDS, "tfds"),
    (load_demo, "babel", "The demo set", "demo"),
    (build_demo, "num2words", "The demo set", "demo"),
    (build_demo, "tensorflow_datasets", _TFDS, "tfds"),
    (make_demo_pairs, "babel", "The demo set", "demo"),
    (start_server, "starlette", "The server", "serve"),
    (start_server, "uvicorn", "The server", "serve"),
    (start_server, "orjson", "The server", "serve"),
    (start_server, "prometheus_client", "The server", "serve"),
    (start_server, "grpc_health", "The server", "serve"),
    (export_by("export_ctranslate2"), "ctranslate2", "An export for CTranslate2", "ctranslate2"),
    (export_by("export_onnx"), "onnx", "An export as ONNX graphs", "onnx"),
    (export_by("export_onnx"), "tf2onnx", "An export as ONNX graphs", "onnx"),
    (look_a_model_up, "huggingface_hub", _HUB, "pretrained"),
    (read_marians_file, "yaml", "A model of Marian", "pretrained"),
]


@pytest.mark.parametrize(
    ("door", "package", "purpose", "extra"),
    _DOORS,
    ids=[f"{door.__name__}-{package}" for door, package, *_ in _DOORS],
)
def test_every_door_in_python_says_so(door, package, purpose, extra, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)  # As if it were not there.
    with pytest.raises(ImportError) as caught:
        door(tmp_path)
    assert str(caught.value) == sentence(purpose, package, extra)


_COMMANDS = [
    (
        ["train", "--data", "demo/en-de", "--source", "en", "--target", "de"],
        "babel",
        "The demo set",
        "demo",
    ),
    (
        ["train", "--data", "ted_hrlr_translate/pt_to_en", "--source", "pt", "--target", "en"],
        "tensorflow_datasets",
        _TFDS,
        "tfds",
    ),
    (["demo"], "num2words", "The demo set", "demo"),
    (["serve", "."], "uvicorn", "The server", "serve"),
]


@pytest.mark.parametrize(
    ("arguments", "package", "purpose", "extra"), _COMMANDS, ids=lambda each: str(each[:1])
)
def test_every_command_says_so(arguments, package, purpose, extra, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, package, None)  # As if it were not there.
    if arguments[0] != "serve":
        arguments = [*arguments, "--run-dir", str(tmp_path / "run")]
    if arguments[0] == "demo":
        arguments = [*arguments, "--export-dir", str(tmp_path / "export")]
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert sentence(purpose, package, extra) in said
    assert "Traceback" not in said


def test_the_extra_all_brings_everything_that_another_extra_brings():
    (named,) = EXTRAS["all"]
    own = {"tfds", "data", "demo", "report", "serve", "ctranslate2", "onnx", "pretrained"}
    assert set(named.removeprefix("keras-addnorm[").removesuffix("]").split(",")) == own
    # The others are for those who work on the library, or learn from its pages.
    others = {"all", "test", "lint", "benchmarks", "docs", "notebooks"}
    assert own == EXTRAS.keys() - others
