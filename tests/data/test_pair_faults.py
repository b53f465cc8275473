"""What is found wrong with pairs: scripts, lengths, overlap with held-out sets."""

import pytest

from keras_addnorm.data import overlap
from keras_addnorm.data.overlap import HeldOutTexts
from keras_addnorm.data.pair_faults import (
    FAULTS,
    CorpusStatistics,
    FaultCounter,
    OtherPairs,
    spoiling_faults,
)
from keras_addnorm.data.scripts import script_of


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Straße, naïve", "Latin"),
        ("ＡＢＣ", "Latin"),
        ("Привет Tom", "Cyrillic"),
        ("東京タワーへ行く", "Chinese/Japanese"),
        ("안녕하세요", "Hangul"),
        ("नमस्ते", "Devanagari"),
        ("สวัสดี", "Thai"),
        ("مرحبا", "Arabic"),
        ("12 µ ∑ 𝑥 !", ""),
        ("", ""),
    ],
)
def test_scripts(text, script):
    assert script_of(text) == script


HELD_OUT = [
    ("Ann paints a small red boat.", "Ann malt ein kleines rotes Boot."),
    ("Yes.", "Ja."),
    ("我今天去商店买菜。", "Ich gehe heute einkaufen."),
    ("", "leer"),
]


@pytest.mark.parametrize(
    ("pair", "exact", "near"),
    [
        (HELD_OUT[0], True, True),
        (("ann paints a small red boat", "x"), False, True),  # case and punctuation
        (("Ann paints a small red boat today", "x"), False, True),  # one word more
        (("Ann paints a small boat", "x"), False, True),  # one word fewer
        (("Ann paints a small red house", "x"), False, True),  # another word
        (("A red boat Ann paints small", "x"), False, True),  # another order
        (("Tom paints a small red house", "x"), False, False),  # two other words
        (("x", "Ann malt ein kleines rotes Auto."), False, True),  # the other side
        (("Yes.", "Yes, sir."), False, False),  # too short to say
        (HELD_OUT[1], True, False),
        (("我今天去商店买鱼。", "x"), False, True),  # characters are words
        (("", "leer"), False, False),
    ],
)
def test_overlap_exact_and_near(pair, exact, near):
    held_out = HeldOutTexts(HELD_OUT)
    assert len(held_out) == 3
    assert (held_out.has(pair), held_out.has_near(pair)) == (exact, near)


def test_near_overlap_of_one_side_alone():
    """Once, nothing was near where all held-out sources are short."""
    held_out = HeldOutTexts([("Ja.", "Ann paints a small red boat.")])
    assert held_out.has_near(("Nein.", "Ann paints a small red house."))
    assert not held_out.has_near(("Ann paints a small red house.", "Nein."))


def test_only_so_many_held_out_pairs_are_compared_word_by_word(monkeypatch):
    monkeypatch.setattr(overlap, "_NEAR_AT_MOST", 1)
    pairs = [(f"{name} paints a small {name} boat", "x") for name in ("Ann", "Tom")]
    held_out = HeldOutTexts(pairs)
    assert all(map(held_out.has, pairs))
    near = [held_out.has_near((f"{source}s", "y")) for source, _ in pairs]
    assert near == [True, False]


LONG = "a sentence of some words in one language"
CORPUS = [(f"{LONG} {n}", f"ein Satz mit einigen Wörtern, Nummer {n}") for n in range(60)]
FAULTY = [
    (CORPUS[0], "duplicates"),
    (("the same", "the same"), "copies"),
    (("gr\ufffdn", "grün"), "broken_text"),
    (("green", "grÃ¼n"), "broken_text"),
    (("it\u2019s", "itâ€™s"), "broken_text"),
    (("held", "out"), "in_held_out"),
    (("nearly held out but one", "fast gleich einem"), "near_held_out"),
    ((f"{LONG} and {LONG}", "nein"), "unlike_lengths"),
    (("Да", "Ja"), "wrong_script"),
    (('He said "yes".', '"Er sagte ""Ja""."'), "doubled_quotes"),
    (("so\u00adft", "weich"), "invisible"),
]
KNOWN = [("held", "out"), ("nearly held out but two", "y")]


def test_each_fault_is_counted_with_its_first_place():
    counter = FaultCounter(OtherPairs(HeldOutTexts(KNOWN)))
    pairs = [*CORPUS, *(pair for pair, _ in FAULTY)]
    for number, pair in enumerate(pairs):
        counter.add(pair, f"line {number}")
    expected = dict.fromkeys(FAULTS, 1) | {"broken_text": 3}
    assert counter.counts() == expected
    assert counter.first["broken_text"] == ("line 62", FAULTY[2][0])
    assert counter.first["wrong_script"] == ("line 68", FAULTY[8][0])

    others, statistics = OtherPairs(HeldOutTexts(KNOWN)), CorpusStatistics.of(counter.features)
    assert statistics.scripts == (("Latin",), ("Latin",))
    found = [spoiling_faults(pair, others, statistics) for pair in pairs]
    # The tokenizer leaves invisible characters out: the pair is as good as others.
    assert found == [[]] * 60 + [[name] * (name != "invisible") for _, name in FAULTY]


def test_what_is_usual_follows_the_corpus():
    """Chinese has fewer characters than English, and Serbian two scripts."""
    counter = FaultCounter(OtherPairs())
    for number in range(50):
        serbian = "Dobar dan" if number % 2 else "Добар дан"
        counter.add((f"{LONG} {LONG} {number}", "一二三四五六七八九十"), serbian)
        counter.add((LONG, serbian), "")
    counts = counter.counts()
    assert counts["wrong_script"] == 0
    assert counts["unlike_lengths"] == 0


@pytest.mark.parametrize("text", ['"A quotation."', '"One" and "two"', '""', '"a"" b" c"'])
def test_what_else_is_in_quotation_marks_is_fine(text):
    counter = FaultCounter(OtherPairs())
    counter.add((text, "b"))
    assert counter.counts()["doubled_quotes"] == 0


def test_only_hints_are_uncertain():
    assert {name for name, fault in FAULTS.items() if not fault.is_certain} == {
        "near_held_out",
        "doubled_quotes",
        "unlike_lengths",
        "wrong_script",
    }
