"""Checkpoints made to harm: a file twice as large takes twice the work, for each family.

A family or a function `read_...` that no file here leads to is an error.
"""

import functools
import importlib
import inspect
import pkgutil
import shutil
import sys
from pathlib import Path

import pytest
from counted_work import naming, require_linear, work_of, write
from growing_folders import OTHERS, changes, load, ordinary
from growing_texts import OF_TEXT, tokenizer

from keras_addnorm.data import load_tokenizer, tokenizer_files
from keras_addnorm.interop import families

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import hostile_folders

sys.path.pop(0)


# Of those who make the folders, such as a name that stands twice in a zip.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """An ordinary folder of each kind, made when it is first asked for."""
    made = tmp_path_factory.mktemp("ordinary")

    def folder(name, place):
        if not (made / name).exists():
            ordinary(name, made)
        return shutil.copytree(made / name, place / name)

    return folder


# What several families read by the same functions grows for one of them.
SHARED = ("config.json", "generation_config.json", "special_tokens_map.json", "added_tokens.json")


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("name", [*families.names(), *OTHERS])
def test_work_on_checkpoints_grows_with_their_files(tmp_path, folders, no_models, name):
    folder = folders(name, tmp_path)
    read = functools.partial(load, hostile_folders.opened(tmp_path, name), name)
    for what, change in changes(folder, () if name == "marian" else SHARED):
        with naming(what):
            require_linear(change, read)


ONE_OF_EACH = ("marian", "bart", "bergamot", "student", "joey_nmt", "opennmt_tf")
"""Folders that all functions which read are led to by."""


def functions_that_read():
    """All functions `read_...` of what reads files of others."""
    found = {}
    for package in ("interop", "alignment", "diagnostics", "data"):
        parent = importlib.import_module(f"keras_addnorm.{package}")
        for each in pkgutil.walk_packages(parent.__path__, f"{parent.__name__}."):
            module = importlib.import_module(each.name)
            for name, value in vars(module).items():
                if name.startswith("read_") and getattr(value, "__module__", "") == each.name:
                    found[f"{each.name}.{name}"] = inspect.unwrap(value).__code__
    return found


def test_all_that_reads_is_led_to(tmp_path, folders, no_models):
    called = set()
    for name in ONE_OF_EACH:
        folders(name, tmp_path)
        read = functools.partial(load, hostile_folders.opened(tmp_path, name), name)
        called |= work_of(read).called
    for file, contents, read in OF_TEXT.values():
        write(tmp_path / file, next(iter(contents.values()))(3))
        called |= work_of(functools.partial(read, tmp_path / file)).called
    for name in tokenizer_files._TABLE.names():
        saved = tokenizer(name).save(tmp_path / f"{name}.model")
        called |= work_of(lambda path=saved: load_tokenizer(path)).called
    known = functions_that_read()
    assert len(known) > 15
    missing = [name for name, code in known.items() if code not in called]
    assert missing == [], "Let a file of a test above lead to them."
