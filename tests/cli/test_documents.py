"""What the documents show runs as it stands."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from keras_addnorm import cli, norms, schemes
from keras_addnorm.runs import RunConfig
from keras_addnorm.runs.toml_files import merge

ROOT = Path(__file__).parents[2]
BLOCKS = [
    pytest.param(code, id=f"{page}-{index}")
    for page in (
        "README.md",
        "docs/add_and_norm.md",
        "docs/data.md",
        "docs/scaling.md",
        "docs/training.md",
    )
    for index, code in enumerate(
        re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    )
]


def commands(page):
    """The arguments of each `keras-addnorm` in a page's blocks of shell."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S):
        if language in ("", "bash"):
            for line in re.findall(r"\bkeras-addnorm (.+)", block.replace("\\\n", " ")):
                yield shlex.split(line, comments=True)


COMMANDS = [
    pytest.param(arguments, id=f"{page.stem}-{index}")
    for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))
    for index, arguments in enumerate(commands(page))
]


def test_the_readme_has_a_tour():
    assert len(BLOCKS) == 12


def test_the_documents_have_commands():
    pages = [param.id.rsplit("-", 1)[0] for param in COMMANDS]
    assert {page: pages.count(page) for page in ("README", "scaling", "training")} == {
        "README": 7,
        "scaling": 2,
        "training": 3,
    }


@pytest.mark.parametrize("arguments", COMMANDS)
def test_the_commands_are_understood(arguments):
    options = cli.build_parser().parse_args(arguments)
    assert callable(options.run)
    if hasattr(options, "set"):
        RunConfig.from_dict(merge({}, cli._given(options)))


@pytest.mark.slow
@pytest.mark.parametrize("code", BLOCKS)
def test_the_tour_runs(code, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    # What a page registers is forgotten.
    monkeypatch.setattr(schemes._TABLE, "_classes", dict(schemes._TABLE._classes))
    exec(compile(code, "a block of a page", "exec"), {})


def test_the_page_of_choices_has_them_all():
    page = (ROOT / "docs" / "add_and_norm.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, re.M)
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    assert named == {*schemes.names(), *norms.names()}


def test_the_readme_has_the_two_marked_commands():
    text = (ROOT / "README.md").read_text()
    commands = {"main job": "keras-addnorm demo", "tests": "pytest -n 2 --dist worksteal"}
    for marker, command in commands.items():
        block = text.split(f"<!-- ci: {marker} -->\n```bash\n")[1].split("```")[0]
        assert block.startswith("python3 -m venv .venv && . .venv/bin/activate")
        assert block.rstrip().endswith(command)


def anchors(page):
    """What links to the headings of a page end with."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", prose, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_in_the_documents_leads_somewhere():
    pages = (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"))
    for document in pages:
        for link in re.findall(r"\]\(([^)]+)\)", document.read_text()):
            if not link.startswith("http"):
                name, _, anchor = link.partition("#")
                page = document.parent / name if name else document
                assert page.exists(), f"{document.name}: {link}"
                assert not anchor or anchor in anchors(page), f"{document.name}: {link}"


@pytest.mark.slow
def test_the_page_of_code_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    example = runpy.run_path(str(ROOT / "examples" / "translate_with_fit.py"))
    translations = example["main"](smoke=True)
    assert len(translations) == len(example["SENTENCES"])
    assert all(isinstance(text, str) for text in translations)
