"""The card of a model of the zoo, in Markdown: what it is, its scores, how it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keras_addnorm import __version__
from keras_addnorm.runs.toml_files import to_toml
from keras_addnorm.runs.zoo.registry import ZooModel

SPLIT = "test"
"""What a model of the zoo is evaluated on."""


def text(
    model: ZooModel,
    scores: Mapping[str, Any],
    digest: str,
    commands: Sequence[str],
    beside_teacher: str = "",
) -> str:
    """Writes the card.

    Args:
        model: The model.
        scores: What `evaluate` wrote of `SPLIT`.
        digest: The SHA-256 of the file of weights.
        commands: The commands that made it, in their order.
        beside_teacher: Of a student, the card that its distillation wrote.

    Returns:
        The card.
    """
    cased, config = scores["cased"], model.config
    return f"""\
---
license: {model.licence.lower()}
language: [{config.source}, {config.target}]
tags: [translation, keras]
---
# {model.name}

{model.about[:1].upper()}{model.about[1:]}. Of the zoo of keras-addnorm {__version__}.

It translates `{config.source}` into `{config.target}`, and was trained on `{config.data}`:
sentences of sixteen kinds about dates, prices, distances and the like, which the library generates.
It knows no other sentences. It is for trying the library, for tests and for teaching, and of no use
as a translator.

```
keras-addnorm translate {model.name} "Emma has to wait two hours and ten minutes."
```

| on the split `{SPLIT}`, {scores["sentences"]:,} sentences that it has not seen | |
|---|---:|
| BLEU | {cased["bleu"]:.2f} |
| chrF | {cased["chrf"]:.2f} |
| exact match | {scores["exact_match"]:.1f} % |

BLEU: `{cased["bleu_signature"]}`. chrF: `{cased["chrf_signature"]}`.
The search has {_search(scores)}.

Licence: {model.licence}, of weights and tokeniser. SHA-256 of `{scores["weights"]}`:
`{digest}`.

## How it was made

`keras-addnorm zoo make {model.name} DIR` did, with the file below:

```
{chr(10).join(commands)}
```

```toml
{to_toml(model.settings).strip()}
```
{_without_header(beside_teacher)}"""


def _search(scores: Mapping[str, Any]) -> str:
    beams = scores["num_beams"]
    return "one beam" if beams == 1 else f"{beams} beams, length penalty {scores['length_penalty']}"


def _without_header(card: str) -> str:
    """The card of a distillation below this one: without licence, its heading one level lower."""
    if not card:
        return ""
    body = card.rpartition("---\n")[2] if card.startswith("---\n") else card
    return f"\n#{body}"
