"""Abbreviations whose dot ends no sentence, by language.

Short lists of frequent ones: what is missing splits a sentence in two, which is translated in two
parts; nothing is lost. A word that is also an ordinary word of another language stands in its own
language's list only.
"""

from __future__ import annotations

import dataclasses

from keras_addnorm.basics.languages import fold


@dataclasses.dataclass(frozen=True)
class Abbreviations:
    """The abbreviations of a language, without their last dot.

    Those that often end a sentence, as "etc." does, are left out: in the middle of one a word in
    lower case follows, before which no text is split.

    Args:
        words: A dot behind these ends no sentence.
        before_numbers: A dot behind these ends no sentence if a number follows.
        has_ordinals: Whether a number with a dot is an ordinal number ("am 3. Mai").
        ends: Marks that end a sentence in this language only.
    """

    words: tuple[str, ...] = ()
    before_numbers: tuple[str, ...] = ()
    has_ordinals: bool = False
    ends: str = ""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Those that no language uses as a word: they hold where the language is not known, too.
COMMON = Abbreviations(
    _words(
        "Mr Mrs Ms Messrs Dr Drs dr Prof prof St Ste Sgt Lt Capt Cpt Hr Frl Sra Srta Dra Sig Mgr "
        "Jr Sr vs e.g i.e cf approx aprox al z.B z.Bsp d.h u.a u.U i.d.R o.ä s.o s.u bzw bspw "
        "ca vgl evtl ggf inkl exkl zzgl p.ej p.ex c.-à-d M.Sc B.Sc Ph.D Dipl Ing"
    ),
    _words("No Nos no Nr nr Art art Fig fig Figs Abb Tab Vol vol Bd Kap Ch Sec Eq pp p S n° Abs"),
)
_LANGUAGES = {
    "cs": Abbreviations(_words("např tzv tj mj resp ing mudr judr phdr"), (), True),
    "da": Abbreviations(_words("f.eks bl.a ca dvs evt hr fr mht nr pga"), (), True),
    "de": Abbreviations(
        _words(
            "Hrn Fr St Abt Allg Bes Bez Co Dir Dres Forts Gebr Geb geb gest Ges Hl hl Hrsg Ing Jh "
            "Jhdt Mag Med Min Mio Mrd Mill Mitgl Mod Nachf Pfr Phil Pos Präs Red Rd Std Str Tel "
            "Univ Verf Vors Wiss allg bes bez bzgl d.i d.J d.M dgl einschl engl entspr frz geg "
            "ggü gem i.A i.S i.V insb insbes jur lat lfd m.E max med mind min n.Chr v.Chr österr "
            "phil rd sog Jan Feb Apr Aug Sep Sept Okt Nov Dez sen jun v.a wg z.T z.Zt zit zw"
        ),
        _words("Anl Anm Aufl Pkt Ziff Zi Rn Z"),
        True,
    ),
    "el": Abbreviations(_words("π.χ κ.λπ κ.ά δηλ κ κα"), (), False, ";"),
    "en": Abbreviations(
        _words(
            "Adj Adm Adv Asst Ave Bldg Blvd Brig Bros Col Comdr Cmdr Cpl Dept Det Dist Esq Ft Gen "
            "Gov Hon Hosp Insp Lt Maj Mlle Mme Mt Mtn Pfc Pres Pte Pvt Rep Reps Rd Rev Sen Sens "
            "Sec Supt Surg Univ ca Jan Feb Mar Apr Aug Sept Sep Oct Nov Dec esp incl est"
        ),
        _words("Apt Ex Para Pt Rm Sect ch eds ed par"),
    ),
    "es": Abbreviations(
        _words("Ud Uds Vd Vds D Dña Excmo Ilmo Lic Gral Avda Av pág págs núm tel EE.UU")
    ),
    "et": Abbreviations(_words("nt st vt"), (), True),
    "fi": Abbreviations(_words("esim mm ks ns n ym"), (), True),
    "fr": Abbreviations(_words("MM Mme Mlle Mgr Me av env chap éd boul art"), _words("t vol")),
    "hr": Abbreviations(_words("npr tj dipl ing mr"), (), True),
    "hu": Abbreviations(_words("pl ill kb ún id ifj"), (), True),
    "it": Abbreviations(_words("Sigg Sig.ra Dott Ing Avv Arch Geom Rag On pag sig dott")),
    "lt": Abbreviations(_words("pvz t.y t.t"), (), True),
    "lv": Abbreviations(_words("piem u.c utt t.i"), (), True),
    "nl": Abbreviations(
        _words("dhr mevr mw drs mr ir ing bijv bv d.w.z m.b.t o.a t.a.v t.n.v n.a.v blz ong")
    ),
    "no": Abbreviations(_words("f.eks bl.a ca dvs evt hr fr nr pga"), (), True),
    "pl": Abbreviations(
        _words("np tzn tj tzw ul al pl inż mgr hab ks św im godz m.in r gen płk ok zob"), (), True
    ),
    "pt": Abbreviations(_words("Exmo Ilmo D Sto Sta Eng Av pág págs nº tel")),
    "ro": Abbreviations(_words("dl dna dvs nr str pag ş.a ex")),
    "ru": Abbreviations(_words("ул д кв стр т.е т.к др им проф акад рис тыс млн")),
    "sk": Abbreviations(_words("napr tzv tj resp ing mudr judr phdr"), (), True),
    "sl": Abbreviations(_words("npr tj ga g oz inž mag"), (), True),
    "sr": Abbreviations(_words("npr tj нпр тј"), (), True),
    "sv": Abbreviations(_words("t.ex bl.a ca dvs el fr.o.m m.fl m.m o.s.v s.k")),
    "tr": Abbreviations(_words("vb vs örn bkz Sn Av Yrd Doç"), (), True),
    "uk": Abbreviations(_words("вул буд кв ім проф акад рис тис млн")),
}
for _code, _like in {"nn": "no", "bs": "hr"}.items():
    _LANGUAGES[_code] = _LANGUAGES[_like]


def abbreviations_of(language: str | None) -> Abbreviations:
    """Return the abbreviations of a language, those that all languages share among them.

    Args:
        language: A code or name such as `"de"`, `"de-AT"` or `"deu"`; `None`, or one without a
            list, for those that all share.

    Returns:
        The abbreviations.
    """
    own = _LANGUAGES.get(fold(language or ""), Abbreviations())
    return dataclasses.replace(
        own,
        words=tuple(dict.fromkeys(COMMON.words + own.words)),
        before_numbers=tuple(dict.fromkeys(COMMON.before_numbers + own.before_numbers)),
    )
