"""Each test runs in exactly one tier: plain `pytest`, slow, release or browser."""

import collections
import pathlib
import re
import shlex
import tomllib

import pytest
import tiers

ROOT = pathlib.Path(__file__).parents[1]


def marker_expressions(command):
    """The values of `-m` in a command line of pytest."""
    words = shlex.split(command)
    return [words[i + 1] for i, word in enumerate(words) if word == "-m"]


def default_tier():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (expression,) = marker_expressions(
        shlex.join(settings["tool"]["pytest"]["ini_options"]["addopts"])
    )
    return expression


def other_tiers():
    """What `.ci/run release` runs after the README's command."""
    commands = re.findall(r"^\s*step (pytest .*)$", (ROOT / ".ci" / "run").read_text(), re.M)
    return [expression for command in commands for expression in marker_expressions(command)]


def is_in(expression, markers):
    """Whether `pytest -m expression` takes a test with these markers."""
    names = set(re.findall(r"\w+", expression)) - {"and", "or", "not"}
    return bool(eval(expression, {"__builtins__": {}}, {name: name in markers for name in names}))


def lost_or_repeated(expressions, markers_of_tests):
    """How often each kind of test runs that does not run once."""
    runs = {
        markers: sum(is_in(expression, markers) for expression in expressions)
        for markers in set(map(frozenset, markers_of_tests))
    }
    return {markers: count for markers, count in runs.items() if count != 1}


def test_readme_and_ci_run_every_test_once(collected_markers):
    """Of those that pytest collected here, before it left out the other tiers."""
    expressions = [default_tier(), *other_tiers()]
    assert lost_or_repeated(expressions, collected_markers) == {}
    sizes = collections.Counter(
        expression
        for expression in expressions
        for markers in collected_markers
        if is_in(expression, markers)
    )
    assert sum(sizes.values()) == len(collected_markers)


def test_the_readme_runs_the_default_tier():
    (command,) = re.findall(r"&& (pytest .*)$", (ROOT / "README.md").read_text(), re.M)
    assert marker_expressions(command) == []


@pytest.mark.parametrize(
    ("expressions", "wrong"),
    [
        (["not slow and not browser", "slow", "browser"], {("browser", "slow"): 2}),
        (["not slow", "slow"], {}),
        (
            ["not slow and not browser", "slow and not browser", "browser and not slow"],
            {("browser", "slow"): 0},
        ),
        (["not slow and not browser", "browser"], {("slow",): 0}),
    ],
)
def test_a_test_that_is_lost_or_repeated_is_found(expressions, wrong):
    markers = [{"slow"}, {"browser"}, {"slow", "browser"}, set(), {"parametrize"}]
    found = lost_or_repeated(expressions, markers)
    assert {tuple(sorted(each)): count for each, count in found.items()} == wrong


def test_fast_cases_are_spread_over_the_axes_of_a_product():
    assert tiers.spread(5, 9) == [0, 1, 2, 3, 4]
    assert tiers.spread(5, 1) == [0]
    found = tiers.spread(48, 12)  # 8 x 6
    assert len(found) == 12
    assert {index // 6 for index in found} == set(range(8))
    assert {index % 6 for index in found} == set(range(6))


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("number", range(5))
def test_twice_as_many_cases_are_slow_and_the_rest_is_for_releases(request, number):
    names = {mark.name for mark in request.node.iter_markers()}
    tier = {0: set(), 2: {"slow"}, 4: {"slow"}}.get(number, {"release"})
    # Fewer are here if the command line names them one by one.
    assert names & {"slow", "release"} == tier or request.session.testscollected < 5
