"""What is built and installed: the wheel holds every file, and needs no extra to be imported."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Only extras install these, or nothing of ours does.
OPTIONAL = (
    *("tensorflow_datasets", "importlib_resources", "babel", "num2words", "plotly", "starlette"),
    *("uvicorn", "orjson", "prometheus_client", "grpc_health", "ctranslate2", "onnx", "tf2onnx"),
    *(
        "pyarrow",
        "defusedxml",
        "onnxruntime",
        "ai_edge_litert",
        "torch",
        "jax",
        "keras_hub",
        "pytest",
        "hypothesis",
    ),
)

ROOMS = sorted(
    path.parent.name
    for path in (ROOT / "keras_addnorm").glob("*/__init__.py")
    if not path.parent.name.startswith("_")
)

# Runs in a new process, where no optional package can be imported.
_IMPORTS = f"""
import importlib, sys, warnings

warnings.filterwarnings("error", module="keras_addnorm")
for name in {OPTIONAL!r}:
    sys.modules[name] = None
import keras_addnorm

assert keras_addnorm.__file__.startswith(sys.argv[1]), keras_addnorm.__file__
for room in {ROOMS!r}:
    module = importlib.import_module("keras_addnorm." + room)
    for name in getattr(module, "__all__", ()):
        getattr(module, name)
from keras_addnorm.serving import server

assert server.Settings
"""

# Runs in a new process: a file says its layers by these names.
_REGISTERED = """
import keras
import keras_addnorm.layers

found = keras.saving.get_custom_objects()
from keras_addnorm import norms

missing = [name for name in norms.__all__ if f"keras_addnorm>{name}" not in found]
print(*sorted(missing))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    for target in ("wheel", "sdist"):
        done = subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The wheel's files as an installation lays them down, in a folder of their own."""
    folder = tmp_path_factory.mktemp("site")
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(folder, *arguments):
    """Runs Python on the installed files, far from the working tree; returns what it says."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"},
        "PYTHONPATH": str(folder),
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def files_of(folder):
    """Every file below a folder that is no leftover of Python."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(installed):
    inside = {
        path.relative_to(installed).as_posix()
        for path in installed.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path for path in inside if path.startswith("keras_addnorm/")} == files_of(
        "keras_addnorm"
    )
    assert "keras_addnorm/py.typed" in inside
    (information,) = {path.split("/")[0] for path in inside} - {"keras_addnorm"}
    assert {path for path in inside if path.startswith(information)} == {
        f"{information}/{name}"
        for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    }
    metadata = (installed / information / "METADATA").read_text("utf-8")
    version = re.search(r'__version__ = "(.*)"', (ROOT / "keras_addnorm/__init__.py").read_text())
    assert f"Version: {version[1]}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert "Provides-Extra: all\n" in metadata


@pytest.mark.slow
def test_the_source_archive_holds_what_the_tests_read(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {
            member.name.partition("/")[2] for member in opened.getmembers() if member.isfile()
        }
    expected = {
        *("pyproject.toml", "constraints.txt", "README.md", "README.zh.md", "CHANGELOG.md"),
        *("CONTRIBUTING.md", "mkdocs.yml", "CITATION.cff", "ROADMAP.md", "CODE_OF_CONDUCT.md"),
        *("LICENSE", "saved_models/README.md"),
    }
    for folder in ("keras_addnorm", "tests", "examples", "benchmarks", "docs", "notebooks"):
        expected |= files_of(folder)
    assert expected - inside == set()


def test_the_citation_has_the_version_and_the_licence_of_the_package():
    import keras_addnorm

    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.*)$", citation, re.M)[1] == keras_addnorm.__version__
    assert re.search(r"^license: (.*)$", citation, re.M)[1] == "Apache-2.0"


def test_the_address_of_the_repository_stands_in_one_place():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert {"Repository", "Issues", "Changelog"} == {*urls}
    assert all(url.startswith(urls["Repository"]) for url in urls.values())
    texts = [
        ROOT / "CITATION.cff",
        ROOT / "mkdocs.yml",
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
    ]
    holders = [path.name for path in texts if "repository.example" in path.read_text("utf-8")]
    # A placeholder, until the page's first step has been taken.
    assert holders in ([], ["releasing.md"])


@pytest.mark.slow
def test_every_public_name_but_the_server_needs_no_extra(installed):
    run(installed, "-c", _IMPORTS, str(installed))


@pytest.mark.slow
def test_the_layers_of_the_readme_need_no_extra(installed):
    text = (ROOT / "README.md").read_text("utf-8")
    tour = re.search(r"^`AddNorm` around.*?```python\n(.*?)```", text, re.S | re.M)[1]
    hidden = f"import sys\nfor name in {OPTIONAL!r}:\n    sys.modules[name] = None\n"
    run(installed, "-c", hidden + tour + "assert y.shape == (2, 5, 16)\n")


@pytest.mark.slow
def test_the_command_answers_without_an_extra(installed):
    hidden = f"import sys\nfor name in {OPTIONAL!r}:\n    sys.modules[name] = None\n"
    call = "from keras_addnorm.cli import main\nsys.argv[0] = 'keras-addnorm'\nsys.exit(main())"
    said, complaints = run(installed, "-W", "error", "-c", hidden + call, "--help")
    assert complaints == ""
    for command in ("demo", "train", "evaluate", "translate", "inspect", "export", "serve"):
        assert re.search(rf"^ +{command} +\S", said, re.M), command
    said, complaints = run(installed, "-W", "error", "-c", hidden + call, "--version")
    assert complaints == ""
    assert re.fullmatch(r"keras-addnorm \S+\n", said)


@pytest.mark.slow
def test_layers_register_the_norms_for_files():
    done = subprocess.run(
        [sys.executable, "-c", _REGISTERED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    functions = "for_side get is_scale_invariant mixes_positions names register"
    assert done.stdout.split() == ["Norm", "NormFactory", "NormLike", "Side", *functions.split()]


def test_what_a_program_begins_with_is_found_at_the_top():
    import keras_addnorm
    from keras_addnorm.layers import AddNorm
    from keras_addnorm.models import Seq2SeqTransformer

    found = (keras_addnorm.AddNorm, keras_addnorm.Seq2SeqTransformer)
    assert found == (AddNorm, Seq2SeqTransformer)
    plain = {name for name in dir(keras_addnorm) if not name.startswith("__")}
    assert plain == {*keras_addnorm._SUBPACKAGES, *keras_addnorm._FROM_SUBPACKAGES}
    assert all(hasattr(keras_addnorm, name) for name in plain)


def test_what_stands_in_a_subpackage_is_looked_for_at_the_top_in_vain_but_told():
    import keras_addnorm

    for name, home in keras_addnorm._LOOKED_FOR.items():
        line = f"from keras_addnorm.{home} import {name}"
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'. Write `{line}`"):
            getattr(keras_addnorm, name)
        exec(line, {})
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'\.$"):
        keras_addnorm.nothing  # noqa: B018 - the attribute is what is tried.
