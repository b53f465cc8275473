"""Every flag of every command is given values that it cannot have: each is answered in words."""

import importlib
import sys
from pathlib import Path

import pytest
from tiers import for_releases

from keras_addnorm.runs.commands import COMMANDS

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
attacked_arguments = importlib.import_module("attacked_arguments")
sys.path.pop(0)


# Most of their flags are those of `train`.
LIKE_TRAIN = ("data", "distill")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", for_releases(sorted(COMMANDS), but=COMMANDS.keys() - LIKE_TRAIN)
)
def test_wrong_values_of_flags_are_refused_in_words(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # And back.
    for number, action in enumerate(attacked_arguments.flags_of(command)):
        folder = tmp_path / str(number)
        folder.mkdir()
        answer = attacked_arguments.answer_of(command, action, folder)
        assert answer.startswith("said: "), (action.option_strings or action.dest, answer)
