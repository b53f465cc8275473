import csv
import dataclasses
import math
import subprocess
import sys
import urllib.error

import keras
import numpy as np
import pytest
import sacrebleu

from keras_addnorm.training import Scores, TranslationScore, bleu_tokenizers, evaluate_translations

HYPOTHESES = [
    "A man in a blue shirt is standing on a ladder, cleaning a window.",
    "The dog runs across the snow.",
    "Two children play in the Park.",
]
REFERENCES = [
    "A guy in a blue shirt stands on a ladder cleaning a window.",
    "A dog runs through the snow.",
    "Two children play in the park.",
]


def test_scores_are_sacrebleu_to_the_last_digit():
    scores = evaluate_translations(HYPOTHESES, REFERENCES)
    assert scores.bleu == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores.chrf == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    version = sacrebleu.__version__
    assert scores.bleu_signature == (
        f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    )
    assert (
        scores.chrf_signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"
    )


def test_scores_are_those_of_the_command(tmp_path):
    (tmp_path / "hypotheses").write_text("\n".join(HYPOTHESES) + "\n")
    (tmp_path / "references").write_text("\n".join(REFERENCES) + "\n")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", "hypotheses", "-b", "-w", "9"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert round(evaluate_translations(HYPOTHESES, REFERENCES).bleu, 9) == float(done.stdout)


def test_lowercase():
    cased = evaluate_translations(HYPOTHESES, REFERENCES)
    lower = evaluate_translations(HYPOTHESES, REFERENCES, lowercase=True)
    assert lower.bleu > cased.bleu
    assert "case:lc" in lower.bleu_signature and "case:lc" in lower.chrf_signature


def test_bounds():
    assert evaluate_translations(REFERENCES, REFERENCES).bleu == pytest.approx(100)
    nothing = evaluate_translations(["", "", ""], REFERENCES)
    assert (nothing.bleu, nothing.chrf) == (0, 0)


F3_PERFECT = {
    "zh": ("zh", ["我今天去商店买菜。", "他们在公园里打篮球。"]),
    "zh-TW": ("zh", ["我今天去商店買菜。", "他們在公園裡打籃球。"]),
    "zho_Hans": ("zh", ["我今天去商店买菜。", "他们在公园里打篮球。"]),
    "th": ("char", ["ฉันไปตลาด", "พวกเขาเล่นบาสเกตบอล"]),
    "lo": ("char", ["ຂ້ອຍໄປຕະຫຼາດ", "ສະບາຍດີ"]),
    "km-KH": ("char", ["ខ្ញុំទៅផ្សារ", "សួស្តី"]),
    "my": ("char", ["ကျွန်တော် ဈေးသွားတယ်", "မင်္ဂလာပါ"]),
    "bo": ("char", ["བཀྲ་ཤིས་བདེ་ལེགས།", "ཐུགས་རྗེ་ཆེ།"]),
    "de": ("13a", REFERENCES),
    None: ("13a", REFERENCES),
}


@pytest.mark.parametrize("language", F3_PERFECT)
def test_f3_a_perfect_system_has_100(language):
    tokenizer, references = F3_PERFECT[language]
    scores = evaluate_translations(references, references, language=language)
    assert scores.bleu == pytest.approx(100) and scores.chrf == pytest.approx(100)
    assert f"|tok:{tokenizer}|" in scores.bleu_signature
    expected = sacrebleu.corpus_bleu(references, [references], tokenize=tokenizer)
    assert scores.bleu == expected.score


# Languages that have no entry, and texts in scripts without spaces between words.
UNSPACED = {
    "shn": ("char", ["မိူဝ်ႈၼႆႉၵႂႃႇၵၢတ်ႇ", "ၶဝ်တဵၵ်းမၢၵ်ႇပေႃး"]),
    "ksw_Mymr": ("char", ["ပှၤတဂၤဟးဝဲလၢကျဲအပူၤ"]),
    "nod": ("char", ["ᨣᩴᩤᨾᩮᩬᩥᨦ"]),
    "jv": ("char", ["ꦱꦸꦒꦼꦁꦫꦮꦸꦃꦱꦼꦢꦪ"]),
    "ban": ("char", ["ᬒᬁᬲ᭄ᬯᬲ᭄ᬢ᭄ᬬᬲ᭄ᬢᬸ"]),
    "cdo": ("zh", ["我今天去商店买菜。", "他们在公园里打篮球。"]),
    "en": ("zh", ["我今天去商店买菜 (OK).", "他们在公园里打篮球。"]),
    None: ("char", ["ฉันไปตลาด", "พวกเขาเล่นบาสเกตบอล"]),
}


@pytest.mark.parametrize("language", UNSPACED)
def test_the_script_of_the_references_decides_where_the_language_says_nothing(language):
    """BLEU of a perfect system was 0 where a language was not in the list."""
    tokenizer, references = UNSPACED[language]
    scores = evaluate_translations(references, references, language=language)
    assert f"|tok:{tokenizer}|" in scores.bleu_signature
    assert scores.bleu == sacrebleu.corpus_bleu(references, [references], tokenize=tokenizer).score
    assert scores.bleu == pytest.approx(100)
    callback = TranslationScore(references, references, echo, language=language)
    assert callback.tokenizer == tokenizer
    given = evaluate_translations(references, references, language=language, tokenizer="intl")
    assert "|tok:intl|" in given.bleu_signature


@pytest.mark.parametrize("language", ["zh-TW", "zho_Hans", "Chinese", "CMN"])
def test_a_region_and_a_name_say_the_same_language(language):
    assert bleu_tokenizers.bleu_tokenizer(language) == "zh"


def test_japanese_is_told_from_chinese_by_its_kana(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    choose = bleu_tokenizers.bleu_tokenizer
    assert choose(references=["私は今日、店に行きました。"]) == "ja-mecab"
    assert choose(references=["我今天去の商店买菜。他们在公园里打篮球。"]) == "zh"
    assert choose("de", references=["Das Wort 東京 steht hier."]) == "13a"
    assert choose("ko", references=["我今天"]) == "ko-mecab"
    assert choose("xyz-Hant") == choose("xyz_Hani") == "zh"


def test_texts_without_spaces_in_another_script_are_warned_of(caplog):
    bleu_tokenizers._say_that_sentences_are_words.cache_clear()
    evaluate_translations(REFERENCES, REFERENCES, language="de")
    evaluate_translations(["Donaudampfschiff"], ["Donaudampfschiff"])
    assert not caplog.text
    references = ["ᜋᜊᜓᜑᜌ᜔ᜀᜅ᜔ᜋᜄᜈ᜔ᜇᜅ᜔ᜉᜒᜎᜒᜉᜒᜈᜐ᜔"]  # Baybayin, of which nothing is known here.
    evaluate_translations(references, references, tokenizer="13a")
    assert not caplog.text
    evaluate_translations(references, references, language="tl")
    assert "'tl') have hardly any spaces" in caplog.text and "tok:13a" in caplog.text


@pytest.mark.parametrize("references", ["abc", 3, [None], [b"a"]])
def test_references_are_a_list_of_strings(references):
    with pytest.raises(ValueError, match="Expected a list of strings as references"):
        bleu_tokenizers.bleu_tokenizer(references=references)


@pytest.mark.parametrize(("language", "extra"), [("ja", "ja"), ("ko-KR", "ko")])
def test_f3_characters_stand_in_for_a_package_that_is_missing(language, extra, monkeypatch, caplog):
    bleu_tokenizers._say_that_characters_stand_in.cache_clear()
    references = ["私は今日、店に行きました。"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    scores = evaluate_translations(references, references, language=language)
    assert scores.bleu == pytest.approx(100) and "|tok:char|" in scores.bleu_signature
    assert f"pip install 'sacrebleu[{extra}]'" in caplog.text
    with pytest.raises(ImportError, match=rf"not installed\. .*sacrebleu\[{extra}\]"):
        evaluate_translations(references, references, tokenizer=f"{extra}-mecab")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert bleu_tokenizers.bleu_tokenizer(language) == f"{extra}-mecab"


def test_a_tokenizer_whose_model_cannot_be_fetched_is_named(monkeypatch, tmp_path):
    def unreachable(*_):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    with pytest.raises(OSError, match=r"'flores200' cannot be downloaded \(.*no network"):
        evaluate_translations(["a"], ["a"], tokenizer="flores200")


def test_f3_a_given_tokenizer_wins_and_a_wrong_one_is_named():
    references = F3_PERFECT["zh"][1]
    scores = evaluate_translations(references, references, language="zh", tokenizer="13a")
    assert "|tok:13a|" in scores.bleu_signature and scores.bleu == 0
    with pytest.raises(ValueError, match="Received: 'char-level'"):
        evaluate_translations(references, references, tokenizer="char-level")


def test_f3_scores_while_training():
    references = F3_PERFECT["zh"][1]
    score = TranslationScore(references, references, echo, language="zh")
    logs = {}
    score.on_epoch_end(0, logs)
    assert logs["val_bleu"] == pytest.approx(100)
    assert "tok:zh" in score.signatures["bleu"]


def test_several_references_are_those_of_sacrebleu():
    hypotheses = ["The cat sat on the mat.", "A dog runs."]
    sets = [["A cat sat on a mat.", "A dog ran."], ["The cat is on the mat.", "The dog runs."]]
    found = evaluate_translations(hypotheses, sets)
    assert found.bleu == sacrebleu.corpus_bleu(hypotheses, sets).score
    assert found.chrf == sacrebleu.corpus_chrf(hypotheses, sets).score
    assert found.bleu_signature.startswith("nrefs:2|")
    assert found.bleu > evaluate_translations(hypotheses, sets[0]).bleu
    assert evaluate_translations(hypotheses, sets[:1]) == evaluate_translations(hypotheses, sets[0])


BAD = {
    "a short set": ((["a", "b"], [["a", "b"], ["a"]]), ValueError, "2 hypotheses and 1 referen"),
    "an empty set": ((["a"], [["a"], []]), ValueError, "references must hold at least one"),
    "a set and a text": ((["a"], [["a"], "b"]), TypeError, "references must be strings"),
    "unequal": ((["a"], ["a", "b"]), ValueError, "1 hypotheses and 2 references"),
    "none": (([], []), ValueError, "hypotheses must hold at least one sentence"),
    "a string": (("abc", ["abc"]), ValueError, "must be a list of strings"),
    "bytes": (([b"a"], ["a"]), TypeError, "at index 0.*Decode bytes"),
    "a book": ((["a"], ["a" * 100_001]), ValueError, "100,001 characters at index 0"),
    "a second book": ((["a"], [["a"], ["a" * 100_001]]), ValueError, "too long to be scored"),
    "references": ((["a"], [None]), TypeError, "references must be strings. Received: None"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_texts_are_named(case):
    arguments, error, message = BAD[case]
    with pytest.raises(error, match=message):
        evaluate_translations(*arguments)


def model():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def fit(callbacks, epochs, built=None, **arguments):
    data = np.ones((2, 1), "float32")
    return (built or model()).fit(
        data, data, epochs=epochs, callbacks=callbacks, verbose=0, **arguments
    )


def rows_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


class Improving:
    """Translates one sentence more correctly at each call, then one less."""

    def __init__(self, right=(0, 3, 1)):
        self.right = iter(right)
        self.calls = []

    def __call__(self, model, sources):
        self.calls.append((model, sources))
        right = next(self.right)
        return REFERENCES[:right] + ["x"] * (len(REFERENCES) - right)


def test_logs_reach_csv_checkpoint_and_early_stopping(tmp_path):
    translate, trained = Improving(), model()
    score = TranslationScore(HYPOTHESES, REFERENCES, translate)
    callbacks = [
        score,
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.ModelCheckpoint(
            str(tmp_path / "best-{epoch}.weights.h5"),
            monitor="val_bleu",
            mode="max",
            save_best_only=True,
            save_weights_only=True,
        ),
        keras.callbacks.EarlyStopping(monitor="val_bleu", mode="max", patience=1),
    ]
    history = fit(callbacks, epochs=9, built=trained).history
    expected = [
        evaluate_translations(REFERENCES[:n] + ["x"] * (3 - n), REFERENCES) for n in (0, 3, 1)
    ]
    assert history["val_bleu"] == [s.bleu for s in expected]
    assert history["val_chrf"] == [s.chrf for s in expected]
    rows = rows_of(tmp_path / "log.csv")
    assert [float(row["val_bleu"]) for row in rows] == history["val_bleu"]
    assert sorted(p.name for p in tmp_path.glob("*.h5")) == [
        "best-1.weights.h5",
        "best-2.weights.h5",
    ]
    assert translate.calls == [(trained, HYPOTHESES)] * 3
    assert score.history == list(enumerate(expected))
    assert score.scores == expected[-1]
    assert score.hypotheses == [REFERENCES[0], "x", "x"]
    assert score.signatures == {
        "bleu": expected[-1].bleu_signature,
        "chrf": expected[-1].chrf_signature,
    }


def test_every_scores_the_first_each_nth_and_the_last(tmp_path):
    score = TranslationScore(HYPOTHESES, REFERENCES, Improving((1, 2, 3)), every=3)
    assert score.signatures == {}
    logger = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    best = keras.callbacks.ModelCheckpoint(
        str(tmp_path / "best-{epoch}.weights.h5"),
        monitor="val_bleu",
        mode="max",
        save_best_only=True,
        save_weights_only=True,
    )
    history = fit([score, logger, best], epochs=6).history
    assert [math.isfinite(v) for v in history["val_bleu"]] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]
    assert [epoch for epoch, _ in score.history] == [0, 3, 5]
    rows = rows_of(tmp_path / "log.csv")
    assert [row["val_chrf"] == "nan" for row in rows] == [False, True, True, False, True, False]
    # An epoch without a score is never the best one.
    assert sorted(p.name for p in tmp_path.glob("*.h5")) == [
        f"best-{epoch}.weights.h5" for epoch in (1, 4, 6)
    ]


def test_lowercase_is_passed_on():
    translate = lambda model, texts: [text.upper() for text in REFERENCES]  # noqa: E731
    score = TranslationScore(HYPOTHESES, REFERENCES, translate, lowercase=True)
    assert fit([score], epochs=1).history["val_bleu"][0] == pytest.approx(100)


def test_scores_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Scores(1.0, 2.0, "a", "b").bleu = 3.0


def echo(model, texts):
    return texts


BAD_CALLBACKS = {
    "unequal": (lambda: TranslationScore(["a"], ["a", "b"], echo), ValueError, "1 sources and 2"),
    "empty": (lambda: TranslationScore([], [], echo), ValueError, "sources must hold at least one"),
    "a book": (
        lambda: TranslationScore(["a"], ["b" * 100_001], echo),
        ValueError,
        "too long to be",
    ),
    "never": (lambda: TranslationScore(["a"], ["b"], echo, every=0), ValueError, "every must be"),
    "a half": (
        lambda: TranslationScore(["a"], ["b"], echo, every=0.5),
        ValueError,
        "an int of at least 1",
    ),
    "no callable": (lambda: TranslationScore(["a"], ["b"], "x"), TypeError, "a callable"),
}


@pytest.mark.parametrize("case", BAD_CALLBACKS)
def test_bad_arguments_are_named(case):
    make, error, message = BAD_CALLBACKS[case]
    with pytest.raises(error, match=message):
        make()


def test_a_translation_too_few_is_named():
    score = TranslationScore(HYPOTHESES, REFERENCES, lambda model, texts: texts[1:])
    with pytest.raises(ValueError, match="Received: 2 texts for 3 sources"):
        fit([score], epochs=1)


def test_a_language_that_is_not_known_is_logged_and_what_is_no_code_is_refused(caplog):
    assert bleu_tokenizers.bleu_tokenizer("qae_Latn") == bleu_tokenizers.bleu_tokenizer("German")
    assert [said[:35] for said in caplog.messages] == ["'qae_Latn' is no code of a language"]
    with pytest.raises(ValueError, match=r"Received: language='\.\./x'"):
        evaluate_translations(["a"], ["a"], language="../x")
