"""What the documents show runs as it stands."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)


def test_the_readme_has_a_tour():
    assert len(BLOCKS) == 3


@pytest.mark.parametrize("index", range(3))
def test_the_tour_runs(index, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    names = {}
    exec(compile(BLOCKS[index], f"README.md block {index}", "exec"), names)
    assert names["model" if index else "y"] is not None


def test_the_readme_has_the_two_marked_commands():
    text = (ROOT / "README.md").read_text()
    for marker, command in {"main job": "keras-addnorm demo", "tests": "pytest -n 2"}.items():
        block = text.split(f"<!-- ci: {marker} -->\n```bash\n")[1].split("```")[0]
        assert block.startswith("python3 -m venv .venv && . .venv/bin/activate")
        assert block.rstrip().endswith(command)


def test_every_link_in_the_documents_leads_somewhere():
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")):
        for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if not link.startswith("http"):
                assert (document.parent / link).exists(), f"{document.name}: {link}"


def test_the_page_of_code_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    example = runpy.run_path(str(ROOT / "examples" / "translate_with_fit.py"))
    translations = example["main"](smoke=True)
    assert len(translations) == len(example["SENTENCES"])
    assert all(isinstance(text, str) for text in translations)
