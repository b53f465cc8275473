"""Functions in processes of their own: what they return, their errors, their cores."""

import os
import subprocess

import pytest

from keras_addnorm.basics.errors import UserError
from keras_addnorm.runs.worker_processes import _require_success, in_processes, shares_of_cores


def test_cores_are_divided_and_shared_where_there_are_too_few(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {2, 3, 5, 7, 11})
    assert shares_of_cores(1) == [[2, 3, 5, 7, 11]]
    assert shares_of_cores(2) == [[2, 5, 11], [3, 7]]
    assert shares_of_cores(7) == [[2], [3], [5], [7], [11], [2], [3]]


def test_a_process_that_the_system_has_ended_is_a_sentence(tmp_path):
    """As Linux does where memory runs out."""
    (tmp_path / "said.err").touch()
    killed = subprocess.Popen(["sleep", "60"])
    killed.kill()
    killed.wait()
    with pytest.raises(UserError, match=r"by SIGKILL\. Where memory .* fewer --processes") as error:
        _require_success([killed], [str(tmp_path / "said")])
    assert len(str(error.value)) < 400


@pytest.mark.slow
def test_processes_return_their_results_and_errors(tmp_path):
    cores = shares_of_cores(2)
    looks = []
    place = "keras_addnorm.runs.progress:duration"
    jobs = [{"seconds": 8}, {"seconds": 200}]
    assert in_processes(place, jobs, cores, lambda: looks.append(1)) == ["8 s", "3 min 20 s"]
    assert looks
    missing = [{"path": str(tmp_path / "none.toml")}]
    with pytest.raises(UserError, match=r"There is no configuration file '.*none.toml'"):
        in_processes("keras_addnorm.runs.toml_files:read_toml", missing, cores[:1])
    with pytest.raises(RuntimeError, match=r"ended with status 1(.|\n)*TypeError"):
        in_processes(place, [{"minutes": 3}], cores[:1])
