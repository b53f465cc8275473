"""A folder of short sentences that trainings are stopped and killed on."""

import pytest

WORDS = {"red": "rot", "green": "grün", "blue": "blau", "big": "groß"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    pairs = [
        (f"{a} {b} {c}"[:limit], f"{WORDS[c]} {WORDS[b]} {WORDS[a]}"[:limit])
        for a in WORDS
        for b in WORDS
        for c, limit in zip(WORDS, (4, 99, 99, 7), strict=True)
    ]
    for split, some in {"train": pairs, "val": pairs[1::8], "test": pairs[3::8]}.items():
        for index, language in enumerate(("en", "de")):
            text = "".join(f"{pair[index]}\n" for pair in some)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder
