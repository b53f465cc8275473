"""The README of an export, with a greedy search that runs as it stands."""

from __future__ import annotations

from pathlib import Path

_README = """\
# A translation model for {runtime}

{about}

`model.json` names inputs, outputs, shapes and special ids. All outputs of `encoder` are inputs of
`decoder_step`, by the same names; `decoder_step` returns the next token's logits and, with `new_`
in front of their names, the self-attentions' caches for its next call. `teacher_forced` gives the
logits of a whole target. Token ids are those of the tokenizer that the model was trained with; if
the export was given it, it is here: `keras_addnorm.data.TokenizerPair.load("{name}")`.
`keras_addnorm_manifest.json` has the SHA-256 of each file; no runtime needs it.

Greedy search, which gives the tokens of the model's own `generate`:

```python
{code}```
"""

_GREEDY = '''

def greedy(source):
    """Translate rows of token ids, int32 (B, S), each ended with end_id, padded with pad_id."""
    state = encoder(source=source)
    token = np.full(len(source), ids["start_id"], "int32")
    is_over = ~state["source_mask"].any(axis=1)
    columns = []
    for index in range(card["max_length"]):
        outputs = decoder_step(token=token, index=np.array(index, "int32"), **state)
        logits = outputs.pop("logits")
        logits[:, card["never_generated"]] = -np.inf
        token = np.where(is_over, ids["pad_id"], logits.argmax(axis=1)).astype("int32")
        columns.append(token)
        state |= {name.removeprefix("new_"): cache for name, cache in outputs.items()}
        is_over |= token == ids["end_id"]
        if is_over.all():
            break
    return np.stack(columns, axis=1)
'''


def write_readme(folder: Path, name: str, runtime: str, about: str, set_up: str) -> None:
    """Write `README.md` into an export; in `set_up`, `FOLDER` stands for its `name`.

    `set_up` is code that defines `encoder` and `decoder_step`, functions from named arrays to a
    dict of arrays, and `ids` and `card` from `model.json`.
    """
    code = set_up.replace("FOLDER", name) + _GREEDY
    text = _README.format(runtime=runtime, about=about, name=name, code=code)
    (folder / "README.md").write_text(text, encoding="utf-8")
