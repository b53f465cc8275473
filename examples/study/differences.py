"""Which differences of BLEU are more than chance of the sentences that were scored."""

from __future__ import annotations

from claims.page import table

from keras_addnorm.training import compare_translations
from study.results import Results


def differences(results: Results) -> str:
    """The section of the page: each scheme's translations tested against the reference scheme's.

    Args:
        results: The study.

    Returns:
        A table, or what to do where no translations are on record.
    """
    study, plan = results.study, results.study.plan
    systems = {}
    for scheme in (results.reference, *results.best_first()):
        found = results.by_seed(scheme, plan.middle).get(plan.seeds[0]) or {}
        if found.get("translations"):
            systems[scheme] = found["translations"]
    if results.reference not in systems or len(systems) < 2:
        return (
            "Not known: the trainings on record kept no translations to test. "
            "`python examples/study_schemes.py --translations` trains those anew that this section "
            f"needs, one of each scheme at {plan.middle} layers, and fills it. Until then a "
            "difference in the table above is one of the means of two seeds, and no more."
        )
    compared = compare_translations(systems, study.references())
    rows = [
        [
            f"`{name}`",
            f"{one.score:.1f}",
            f"{one.mean:.1f} ± {one.interval:.1f}",
            *(
                ["", "", ""]
                if one.bootstrap_p is None
                else [
                    f"{one.bootstrap_p:.4f}",
                    f"{one.randomization_p:.4f}",
                    "yes" if one.is_significant else "no",
                ]
            ),
        ]
        for name, one in zip(compared.systems, compared.bleu, strict=True)
    ]
    header = ["scheme", "BLEU", "95 % interval", "bootstrap p", "randomisation p", "real"]
    return (
        f"At {plan.middle} layers and the rate of each scheme, first seed, against "
        f"`{results.reference}`: sacreBLEU's paired bootstrap and approximate randomisation over "
        f"the {study.scale.scored} sentences. *Real* means both below 0.05: other sentences of "
        "this kind would show the difference too. Another seed of the training is not in it; the "
        "losses above show how far seeds differ. Equal scores have p = 1.\n\n" + table(header, rows)
    )
