"""Paired tests of translations, beside sacreBLEU's own command."""

import re
import subprocess
import sys

import numpy as np
import pytest

from keras_addnorm.training import compare_translations

WORDS = ("the", "dog", "runs", "through", "deep", "snow", "two", "children", "play", "in", "a")


def texts(seed, wrong):
    """37 sentences; those of another seed share most words, and `wrong` of each are others."""
    rng, others = np.random.default_rng(3), np.random.default_rng(seed)
    found = []
    for _ in range(37):
        words = list(rng.choice(WORDS, size=rng.integers(5, 13)))
        for place in others.integers(len(words), size=others.integers(0, wrong + 1)):
            words[place] = "ball"
        found.append(" ".join(words).capitalize() + ".")
    return found


REFERENCES = texts(0, 0)
SYSTEMS = {"base": texts(1, 3), "far": texts(5, 9)}


def test_p_values_are_those_of_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    for name, lines in {"references": REFERENCES, **SYSTEMS}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", *SYSTEMS]
    command += ["-m", "bleu", "chrf", "-f", "latex", "-w", "9"]
    # A row a system; numbers as in "64.1 (64.2 ± 1.9) (p = 0.0120)". JSON fails with NumPy 2.
    rows = {}
    for flag in ("--paired-bs", "--paired-ar"):
        done = subprocess.run([*command, flag], cwd=tmp_path, capture_output=True, check=True)
        lines = re.findall(r"^(.*)&(.*)&(.*)\\\\$", done.stdout.decode(), re.MULTILINE)
        rows[flag] = [[re.findall(r"\d+\.\d+", cell) for cell in line[1:]] for line in lines[1:]]

    found = compare_translations(SYSTEMS, REFERENCES)
    for number in range(len(SYSTEMS)):
        for metric, each in enumerate((found.bleu[number], found.chrf[number])):
            expected = [f"{each.score:.9f}", f"{each.mean:.9f}", f"{each.interval:.9f}"]
            if number:
                expected.append(f"{each.bootstrap_p:.4f}")
            assert rows["--paired-bs"][number][metric] == expected
            by_randomization = rows["--paired-ar"][number][metric][1:]
            assert by_randomization == ([f"{each.randomization_p:.4f}"] if number else [])
    assert 0.0005 < found.bleu[1].bootstrap_p < 0.9
    assert "|seed:7|" in found.bleu_signatures[0]
    assert "|ar:10000|" in found.chrf_signatures[1]
    assert found.to_dict()["systems"]["far"]["bleu"]["bootstrap_p"] == found.bleu[1].bootstrap_p


def test_no_difference_is_no_significant_one():
    """sacreBLEU prints its smallest p-value of two equal systems."""
    found = compare_translations({"a": SYSTEMS["far"], "b": SYSTEMS["far"]}, [REFERENCES] * 2)
    assert (found.bleu[1].bootstrap_p, found.chrf[1].randomization_p) == (1, 1)
    assert not found.bleu[1].is_significant and not found.bleu[0].is_significant
    assert found.bleu_signatures[0].startswith("nrefs:2|")


@pytest.mark.parametrize(
    ("systems", "message"),
    [
        ({"a": REFERENCES}, "two systems or more"),
        ({"a": REFERENCES, "b": REFERENCES[:-1]}, "36 translations by 'b' and 37 references"),
        ({"a": REFERENCES, "b": [*REFERENCES[:-1], None]}, "b must be strings"),
        ({"a": REFERENCES, "b": "text"}, "b must be a list"),
    ],
)
def test_what_cannot_be_compared(systems, message):
    with pytest.raises((ValueError, TypeError), match=message):
        compare_translations(systems, REFERENCES)
