"""Where texts are split, and how their translations are joined again."""

import dataclasses
import sys

import pytest

from keras_addnorm.decoding import LongTexts, NoSplitting, Sentences, splitting
from keras_addnorm.decoding.sentence_rules import MARK, WHITE_SPACE, sentence_rules
from keras_addnorm.decoding.splitting import Boundaries, join, make_segments


def parts(text, language=None):
    return splitting.split(text, Sentences(language))


SPLITS = {
    "english": (None, ["She left. ", "He stayed! ", "Why? ", "Nobody knows… ", "Fine."]),
    "quotes": (None, ['"Stop!" he said. ', "“Go on.” ", "(All of it.) ", "Yes."]),
    "titles": ("en", ["Dr. and Mrs. Cox met Prof. Lee at St. Paul. ", "It rained."]),
    "initials": (None, ["J. R. R. Tolkien and the U.S. Army met. ", "A. Smith paid."]),
    "numbers": (None, ["Pi is 3.14 and No. 5 costs $1,000.50. ", "See Fig. 2 on p. 7."]),
    "times": (None, ["At 5 p.m. it starts, e.g. with v1.2.3 of example.com. ", "Come."]),
    "ellipsis": (None, ["Well... maybe. ", "Wait... ", "No."]),
    "lower case": (None, ["then we slept? ", "yes! ", "we did."]),
    "tokens": (None, ["a man sleeps . ", "a dog runs ."]),
    "long word": (None, ["it was understood. ", "so they went."]),
    "list": (None, ["1. First things.\n", "2. Second things."]),
    "lines": (None, ["A title\n", "No dot here\r\n\r\n", "another line.\u2028", "End"]),
    "german": ("de", ["Am 3. Mai z. B. kam Dr. Weiß, d. h. Karl IV. Müller. ", "Er blieb."]),
    "german dates": ("de", ["Emma wurde am 12. Dezember 1963 geboren. ", "Sie lebt."]),
    "german short": ("de", ["Das kostet ca. 5 Mio. Euro bzw. z.B. Nr. 7 hier. ", "Ja."]),
    "no language": (None, ["It cost 12. ", "Dezember came."]),
    "spanish": ("es", ["¿Qué tal? ", "¡Bien, Sr. López! ", "Hola."]),
    "french": ("fr", ["« Bonjour ! » ", "M. Dupont est là. ", "Oui."]),
    "greek": ("el", ["Τι κάνεις; ", "Καλά. ", "Ευχαριστώ."]),
    "russian": ("ru", ["А. С. Пушкин жил на ул. Мойка. ", "Да, и т.д. и т.п. ", "Конец."]),
    "armenian": (None, ["Նա գնաց։ ", "Նա եկավ։"]),
    "chinese": (None, ["你好，世界！", "你去哪儿？？", "他说：“走吧。”", "好。"]),
    "normalised chinese": (None, ["你好,世界!", "你去哪儿?", "再见。"]),
    "japanese": (None, ["「行こう。」", "彼は3.5キロ走った。", "はい！ ", "終わり。"]),
    "arabic": (None, ["ذهب الولد إلى المدرسة. ", "هل رجع؟ ", "نعم، رجع."]),
    "urdu": (None, ["وہ گھر گیا۔ ", "کیا وہ آیا؟ ", "ہاں۔"]),
    "hindi": (None, ["वह घर गया। ", "क्या वह आया? ", "हाँ।", "बस॥"]),
    "thai": (None, ["เขาไปโรงเรียน แล้วกลับบ้าน"]),
    "thai with marks": (None, ["เขาไปไหน? ", "ไปโรงเรียน! ", "ดี"]),
    "blank": (None, [""]),
}


@pytest.mark.parametrize("name", SPLITS)
def test_sentences(name):
    language, expected = SPLITS[name]
    assert parts("".join(expected), language) == expected


def test_u1_sixty_sentences_on_a_line():
    sentences = [f"Sentence number {number} is here. " for number in range(60)]
    assert parts("".join(sentences)) == sentences


@pytest.mark.parametrize("white", ["", " \t", "\n \n", "\u3000", "\xa0"])
def test_white_space_around_a_text_is_no_segment(white):
    assert parts(f"{white}A b. C d.{white}") == ["A b. ", f"C d.{white}"]
    assert parts(white) == [""]


def test_what_is_split_is_the_text():
    text = " ".join("".join(expected) for _, expected in SPLITS.values())
    assert "".join(parts(text)) == text
    # A noncharacter that Unicode leaves to programs for such marks is taken out of the text.
    assert parts(f"a{MARK}b. C") == ["ab. ", "C"]


def test_languages_by_any_code():
    text = "Der 3. Mai. Ende."
    assert parts(text, "de") == parts(text, "de-AT") == parts(text, "DE_at") != parts(text, "en")
    assert sentence_rules("tlh") == sentence_rules(None)


def test_languages_that_are_not_known_are_logged_and_others_refused(caplog):
    assert parts("Go. Now.", "German") == parts("Go. Now.", "qad") == ["Go. ", "Now."]
    assert [said[:30] for said in caplog.messages] == ["'qad' is no code of a language"]
    with pytest.raises(ValueError, match=r"Received: language='\.\./x'"):
        Sentences("../x")


def test_white_space_is_pythons():
    spaces = {chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()}
    assert set(WHITE_SPACE) == spaces


@pytest.mark.parametrize("filler", [".", " ", "\n", "a.", "(", "」", "。", '"', "1.", "A.", "-"])
def test_long_runs_take_linear_time(filler):
    """Quadratic time would be minutes; the rules leave no room for it."""
    run = filler * (100_000 // len(filler))
    for text in ("x" + run, f"{run}.a", f"a. B{run}c. D{run}"):
        assert "".join(parts(text)) == text.lstrip()


def test_ways_by_name():
    assert splitting.names() == ("sentences", "long_texts", "none")
    assert splitting.get({"name": "long_texts", "language": "de"}) == LongTexts("de")
    assert splitting.serialize(NoSplitting()) == {"name": "none"}
    assert splitting.split("A b. C d.", "none") == ["A b. C d."]
    with pytest.raises(ValueError, match="no such way of splitting texts"):
        splitting.get("words")


JOINS = {
    "space": (["Ja.", "Nein."], [" "], "Ja. Nein."),
    "two spaces": (["Ja.", "Nein."], ["  "], "Ja.  Nein."),
    "none in the source": (["Yes.", "No.", "Oh."], ["", ""], "Yes. No. Oh."),
    "lines": (["Ja.", "Nein.", "Oh"], ["\n\n", " \r\n  "], "Ja.\n\nNein. \r\n  Oh"),
    "chinese": (["是。", "他说“不”", "OK"], [" ", " "], "是。他说“不”OK"),
    "normalised chinese": (["是!", "不?", "好."], [" ", ""], "是!不?好."),
    "japanese after latin": (["OK.", "はい。"], [" "], "OK. はい。"),
    "korean": (["네.", "아니요."], [" "], "네. 아니요."),
    "thai": (["ใช่", "ไม่"], [" "], "ใช่ ไม่"),
    "nothing said": (["Ja.", "", "Nein."], [" ", " "], "Ja. Nein."),
    "nothing said on a line": (["Ja.", "", "Nein."], ["\n", " "], "Ja.\nNein."),
    "nothing at the ends": (["", "Ja.", ""], [" ", " "], "Ja."),
    "nothing at all": (["", ""], ["\n"], ""),
}


@pytest.mark.parametrize("name", JOINS)
def test_joined(name):
    texts, gaps, expected = JOINS[name]
    assert join(texts, [MARK + gap for gap in [*gaps, "\n"]]) == expected


def test_joined_inside_of_a_word():
    assert join(["Donau", "dampf", "schiff"], ["", MARK, ""]) == "Donaudampf schiff"


@dataclasses.dataclass
class Piece:
    text: str


class Pieces:
    """One token a word or mark, numbered in the order of `WORDS`."""

    WORDS = ("", "", "", "?", "▁a", "▁b", "b", ",", "▁,", "，", "好", "▁", "a.", "5")

    def __init__(self):
        self.pieces = [Piece(text) for text in self.WORDS]
        self.vocabulary_size = len(self.WORDS)

    def encode_batch(self, texts):
        return [
            [self.WORDS.index(word) for word in text.split("|")] if text else [] for text in texts
        ]


def divided(tokens, longest):
    tokens = tokens.split("|")
    ids = [Pieces.WORDS.index(token) for token in tokens]
    found = list(Boundaries.of(Pieces()).divide(ids, longest))
    starts = [0, *(end for end, _ in found)]
    ends = [*starts[1:], len(tokens)]
    return ["".join(tokens[a:b]) for a, b in zip(starts, ends, strict=True)], [j for _, j in found]


SPACE, NONE = MARK + " ", MARK


@pytest.mark.parametrize(
    ("tokens", "longest", "expected", "joints"),
    [
        ("▁a|▁b|▁a", 3, ["▁a▁b▁a"], []),
        ("▁a|▁b|▁a|▁b", 3, ["▁a▁b▁a", "▁b"], [SPACE]),
        ("▁a|b|▁b|b|b", 3, ["▁ab", "▁bbb"], [SPACE]),  # at the space, not inside a word
        ("▁a|b|b|b|b|b|b", 3, ["▁abb", "bbb", "b"], ["", ""]),  # a long word
        ("▁a|▁b|,|▁a|▁b|▁a", 5, ["▁a▁b,", "▁a▁b▁a"], [SPACE]),  # the comma is late enough
        ("▁a|,|▁b|▁a|▁b|▁a", 5, ["▁a,▁b▁a▁b", "▁a"], [SPACE]),  # here it is not
        ("▁a|5|,|5|5|5", 4, ["▁a5,5", "55"], [""]),  # no comma of a list
        ("好|，|好|好|，|好", 4, ["好，", "好好，好"], [NONE]),
        ("▁a|▁|b|b|b", 3, ["▁a▁", "bbb"], [SPACE]),
        ("▁a|▁b|a.|▁a|b", 4, ["▁a▁ba.", "▁ab"], [SPACE]),
    ],
)
def test_divided(tokens, longest, expected, joints):
    assert divided(tokens, longest) == (expected, joints)


def test_a_tokenizer_without_pieces_is_divided_anywhere():
    class Letters:
        vocabulary_size = 9

    assert list(Boundaries.of(Letters()).divide([3, 4, 5, 6, 7], 2)) == [(2, ""), (4, "")]


@dataclasses.dataclass
class Config:
    max_length: int = 4
    end_id: int = 2


def test_segments():
    segments = make_segments(["▁a|▁b|▁a|b", "", "▁b"], Pieces(), "sentences", Config())
    assert segments.rows == [[4, 5, 2], [4, 6, 2], [], [5, 2]]
    assert segments.first_rows == [0, 2, 3, 4]
    assert segments.joints[0] == SPACE
    cut = make_segments(["▁a|▁b|▁a|b", "", "▁b"], Pieces(), "none", Config())
    assert (cut.rows, cut.first_rows) == ([[4, 5, 4, 2], [], [5, 2]], [0, 1, 2, 3])


def test_a_model_that_reads_nothing_is_refused():
    for way in (Sentences(), LongTexts()):
        with pytest.raises(ValueError, match=r"Expected a config with max_length >= 2.*: 1\."):
            make_segments(["▁a"], Pieces(), way, Config(max_length=1))
    assert make_segments(["▁a"], Pieces(), "none", Config(max_length=1)).rows == [[]]


def test_only_what_does_not_fit_is_split():
    class Words:
        vocabulary_size = 9

        def encode_batch(self, texts):
            return [[5 for _ in text.split()] for text in texts]

    texts = ["Aa. Bb. Cc.", "Aa.\nBb.", "Aa. Bb. Cc. Dd."]
    found = make_segments(texts, Words(), LongTexts(), Config(max_length=4))
    assert list(map(len, found.rows)) == [4, 3, 2, 2, 2, 2]
    found = make_segments(texts, Words(), Sentences(), Config(max_length=4))
    assert list(map(len, found.rows)) == [2] * 9
