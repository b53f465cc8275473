"""The page of durations holds what the reports say."""

import sys

import durations
import pytest

CASE = '<testcase classname="tests.{}" name="{}" time="{}">{}</testcase>'


def report(path, *cases):
    text = "".join(CASE.format(*case, *[""] * (4 - len(case))) for case in cases)
    path.write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")
    return path


@pytest.fixture
def reports(tmp_path):
    one = report(
        tmp_path / "one.xml",
        ("layers.test_a", "test_x[1]", 0.25),
        ("layers.test_a", "test_x[2]", 0.5),
        ("test_b", "test_y[a|b]", 3.0),
    )
    two = report(tmp_path / "two.xml", ("layers.test_a", "test_z", 40.125))
    return [f"default={one}", f"slow={two}"]


def test_the_page(reports, tmp_path):
    durations.main([*reports, "--output", str(tmp_path / "page.md")])
    lines = (tmp_path / "page.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("|") and "---" not in line]
    assert rows == [
        "| tier | tests | seconds |",
        "| default | 3 | 4 |",
        "| slow | 1 | 40 |",
        "| file | default: tests | seconds | slow: tests | seconds |",
        "| `tests/layers/test_a.py` | 2 | 0.8 | 1 | 40.1 |",
        "| `tests/test_b.py` | 1 | 3.0 | 0 | 0.0 |",
        "| seconds | tier | case |",
        "| 40.1 | slow | `tests/layers/test_a.py::test_z` |",
        r"| 3.0 | default | `tests/test_b.py::test_y[a\|b]` |",
        "| 0.5 | default | `tests/layers/test_a.py::test_x[2]` |",
        "| 0.2 | default | `tests/layers/test_a.py::test_x[1]` |",
    ]


def test_it_reads_what_pytest_writes(pytestconfig, tmp_path):
    """Names of files come from those of modules, as pytest has written them since its version 6."""
    from _pytest.junitxml import mangle_test_address

    (*folders, name) = mangle_test_address("tests/layers/test_a.py::test_x[a/b.py::c]")
    path = report(tmp_path / "r.xml", (".".join(folders).removeprefix("tests."), name, 1))
    (case,) = durations.read_report("slow", path)
    assert case == durations.Case("slow", "tests/layers/test_a.py", "test_x[a/b.py::c]", 1.0)


def test_without_reports_the_tiers_are_run(monkeypatch, tmp_path):
    commands = []

    class Done:
        returncode = 0

    def run(command, cwd):
        commands.append(command)
        report(tmp_path.__class__(command[-1].removeprefix("--junitxml=")), ("a.test", "t", 1))
        return Done()

    monkeypatch.setattr(durations.subprocess, "run", run)
    durations.main(["--output", str(tmp_path / "page.md")])
    assert [command[:3] for command in commands] == 3 * [[sys.executable, "-m", "pytest"]]
    assert [command[command.index("--dist") + 1 : -1] for command in commands] == [
        ["worksteal"],
        ["loadfile", "-m", "slow and not release"],
        ["loadfile", "-m", "release"],
    ]
    Done.returncode = 1
    (tmp_path / "page.md").unlink()
    with pytest.raises(SystemExit, match="The default tier did not pass"):
        durations.main(["--output", str(tmp_path / "page.md")])
    assert not (tmp_path / "page.md").exists()


@pytest.mark.parametrize(
    ("cases", "message"),
    [([], "no test in it"), ([("test_a", "t", 1, "<failure/>")], "test_a.py::t failed")],
)
def test_reports_without_times_are_refused(cases, message, tmp_path):
    path = report(tmp_path / "r.xml", *cases)
    with pytest.raises(SystemExit, match=message):
        durations.main([f"slow={path}", "--output", str(tmp_path / "page.md")])
    assert not (tmp_path / "page.md").exists()


def test_a_report_needs_a_tier(capsys, tmp_path):
    with pytest.raises(SystemExit):
        durations.main(["report.xml", "--output", str(tmp_path / "page.md")])
    assert "a report is TIER=FILE" in capsys.readouterr().err
