"""Which split and language a file is, by its name, as OPUS, WMT, OpenNMT and others name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keras_addnorm.basics.languages import tidy
from keras_addnorm.data.readers import InputFile, reader_by_name

VALIDATION_NAMES = frozenset({"val", "valid", "validation", "dev"})
NAMING = (
    "Files are named <split>.<language>, plain or with .gz, .bz2, .xz or .zst: train.en, train.de, "
    "val.en, val.de, test.en, test.de"
)

# A code with script, region (letters or a number) and variants: zh-Hant-TW, es-419, ca-valencia.
_LANGUAGE = (
    r"[A-Za-z]{2,3}(?:[_-][A-Za-z]{2,4}){0,2}(?:[_-]\d{3})?"
    r"(?:[_-](?:[A-Za-z\d]{5,8}|\d[A-Za-z\d]{3}))*"
)
_ROLE = r"src|tgt|trg|source|target"
_SPLIT = "|".join(("train", *sorted(VALIDATION_NAMES)))
# Names of files that are in parts: data-00000-of-00002, train-00000-of-00001, test.part1
_PART = r"(?:[-_.](?:\d+-of-\d+|part\d+|\d+))?"
# Endings of three letters or fewer that are no language.
_NO_LANGUAGES = frozenset(
    {"txt", "tsv", "tab", "csv", "po", "tmx", "xlf", "pq", "gz", "bz2", "xz", "zst", "zip", "tar"}
    | {"ids", "md", "rst", "py", "sh", "log", "xml", "sgm", "bpe", "dat", "bin", "npz", "npy"}
    | {"h5", "pdf", "doc", "css", "js", "yml"}
)
_NOT_DATA = re.compile(
    r"[._].*|readme.*|licen[cs]e.*|changelog.*|dataset_infos?\.json|dataset_dict\.json|state\.json",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Form:
    """A form of names for a file with the texts of one language.

    Attributes:
        pattern: Groups `stem` and `language`, and `pair` where the name has both languages.
        is_corpus: Whether all such files together are the training text, if there is no `train`.
    """

    pattern: re.Pattern[str]
    is_corpus: bool = False


# In the order of preference: of two forms for one split, the first counts.
_FORMS = (
    # train.en, val.de, test_2016_flickr.en
    _Form(re.compile(rf"(?P<stem>{_SPLIT}|test[\w.-]*?)\.(?P<language>{_LANGUAGE})")),
    # train.tok.en, train.de-en.en, train.en.txt, test.en.txt
    _Form(
        re.compile(
            rf"(?P<stem>(?P<split>{_SPLIT}|test\w*)(?:\.[\w-]+)*?)"
            rf"\.(?P<language>{_LANGUAGE}|{_ROLE})(?:\.txt)?"
        )
    ),
    # src-train.txt, tgt-val.txt
    _Form(re.compile(rf"(?P<language>{_ROLE})[-_.](?P<stem>{_SPLIT}|test\w*)(?:\.txt)?")),
    # newstest2014.en, newsdev2016.tok.de, dev2010.en, tst2013.de
    _Form(
        re.compile(
            r"(?P<stem>(?P<split>news(?:discuss)?(?:test|dev)\w*|(?:dev|tst|devtest)\d*)"
            rf"(?:\.[\w-]+)*?)\.(?P<language>{_LANGUAGE})(?:\.txt)?"
        )
    ),
    # europarl-v7.de-en.de, Tatoeba.de-en.en
    _Form(
        re.compile(
            rf"(?P<stem>.+\.(?P<pair>{_LANGUAGE}-{_LANGUAGE}))"
            rf"\.(?P<language>{_LANGUAGE})(?:\.txt)?"
        ),
        is_corpus=True,
    ),
)


@dataclass(frozen=True)
class SideFile:
    """A file with the texts of one language.

    Attributes:
        file: The file.
        split: The split.
        language: The language as the name has it, or a role such as `src`.
        form: The form of its name: files of one form with the same text before the language belong
            together.
        is_corpus: Whether all such files together are the training text.
    """

    file: InputFile
    split: str
    language: str
    form: tuple[int, str]
    is_corpus: bool


def side_files(files: Iterable[InputFile]) -> list[SideFile]:
    """The files that have the texts of one language, by their names.

    Args:
        files: The files of a folder or an archive.

    Returns:
        Those whose name tells split and language.
    """
    found = []
    for file in files:
        for index, form in enumerate(_FORMS):
            match = form.pattern.fullmatch(file.plain_name)
            if match is None or match["language"].lower() in _NO_LANGUAGES:
                continue
            groups = match.groupdict()
            if form.is_corpus and not _is_of_pair(match["language"], groups["pair"]):
                continue
            stem = groups.get("split") or match["stem"]
            split = "train" if form.is_corpus else split_name(stem)
            # In the first form, val.en and dev.de belong together: both are the validation set.
            rest = split if index == 0 else match["stem"]
            found.append(SideFile(file, split, match["language"], (index, rest), form.is_corpus))
            break
    return found


def _is_of_pair(language: str, pair: str) -> bool:
    """Whether a language is the first or the last of a pair such as `en-zh_Hant`."""
    language, pair = tidy(language), tidy(pair)
    return pair.startswith(f"{language}-") or pair.endswith(f"-{language}")


def table_files(files: Sequence[InputFile]) -> dict[str, tuple[InputFile, ...]]:
    """The files that have both texts of a pair, by split.

    Args:
        files: The files of a folder or an archive.

    Returns:
        The files of each split that names or folders name. If none does, all are `train`.
    """
    readable = [
        file
        for file in files
        if not _NOT_DATA.fullmatch(file.name) and reader_by_name(file) is not None
    ]
    named: dict[str, list[InputFile]] = {}
    for file in readable:
        if split := _split_of_table(file):
            named.setdefault(split, []).append(file)
    if "train" not in named and len(named) < len(readable):
        rest = [file for file in readable if not _split_of_table(file) and _has_columns(file)]
        if rest:
            named["train"] = rest
    return {split: tuple(some) for split, some in named.items()}


def _split_of_table(file: InputFile) -> str:
    stem = file.plain_name.rpartition(".")[0]
    pattern = rf"(?P<split>{_SPLIT}|test\w*?|newstest\w*?|newsdev\w*?){_PART}"
    if match := re.fullmatch(pattern, stem):
        return split_name(match["split"])
    # What `save_to_disk` of Hugging Face writes: train/data-00000-of-00001.arrow
    folder = (file.member or file.path.as_posix()).split("/")[-2:-1]
    if (
        folder
        and re.fullmatch(rf"{_SPLIT}|test\w*", folder[0])
        and re.fullmatch(rf"data{_PART}", stem)
    ):
        return split_name(folder[0])
    return ""


def _has_columns(file: InputFile) -> bool:
    """Whether a file is a table; of texts, only those with a tab in the first line are."""
    if not file.plain_name.lower().endswith(".txt"):
        return True
    return b"\t" in file.read_start().split(b"\n")[0]


def split_name(stem: str) -> str:
    """The name of a split: a word, as TensorFlow Datasets has it."""
    return "validation" if stem in VALIDATION_NAMES else re.sub(r"\W", "_", stem)


def split_order(split: str) -> tuple[int, str]:
    """Sorts training before validation before tests."""
    return {"train": 0, "validation": 1}.get(split, 2), split


def side_of_role(name: str) -> int | None:
    """0 for `src` and `source`, 1 for `tgt`, `trg` and `target`, `None` for a language."""
    if re.fullmatch(_ROLE, name):
        return int(name[0] == "t")
    return None
