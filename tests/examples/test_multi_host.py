"""The example of several hosts, with two processes on this one."""

import re

import pytest

pytestmark = pytest.mark.release


def test_two_processes_come_to_one_loss(load_example):
    with load_example("multi_host") as module:
        lines = module.smoke()
    assert len(lines) == 2
    losses = {re.search(r"loss ([\d.]+)", line)[1] for line in lines}
    assert len(losses) == 1 and 3 < float(losses.pop()) < 7
    for index, line in enumerate(lines):
        assert f"2 copies of the weights, each spread over 2 devices; process {index + 1}" in line
        assert "a kernel of (32, 256) lies here as (32, 128)" in line
