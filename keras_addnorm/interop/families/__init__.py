"""Families of checkpoints, by name: one frozen description each, read in both directions.

```python
from keras_addnorm.interop import families

families.names()  # ('marian', 'm2m_100', 'mbart', ...)
families.get("marian")  # Marian()
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_addnorm.basics import Table
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.interop.families.bart import Bart, MBart, Pegasus
from keras_addnorm.interop.families.eole import Eole
from keras_addnorm.interop.families.fairseq import Fairseq
from keras_addnorm.interop.families.family import Checkpoint, Family
from keras_addnorm.interop.families.huggingface import read_settings
from keras_addnorm.interop.families.joey_nmt import JoeyNMT
from keras_addnorm.interop.families.m2m_100 import M2M100
from keras_addnorm.interop.families.marian import Marian
from keras_addnorm.interop.families.marian_npz import MarianNpz
from keras_addnorm.interop.families.opennmt_py import OpenNMTPy
from keras_addnorm.interop.families.opennmt_tf import OpenNMTTF
from keras_addnorm.interop.families.t5 import MT5, T5, UMT5
from keras_addnorm.interop.families.torch_transformer import TorchTransformer

__all__ = [
    "Checkpoint",
    "Family",
    "get",
    "name_of",
    "names",
    "of_settings",
    "read_settings",
    "register",
    "serialize",
]

_TABLE: Table[Family] = Table(
    "family of checkpoints",
    Family,  # type: ignore[type-abstract]
    {
        "marian": Marian,
        "t5": T5,
        "mt5": MT5,
        "umt5": UMT5,
        "m2m_100": M2M100,
        "mbart": MBart,
        "bart": Bart,
        "pegasus": Pegasus,
        "marian_npz": MarianNpz,
        "fairseq": Fairseq,
        "opennmt_py": OpenNMTPy,
        "eole": Eole,
        "joey_nmt": JoeyNMT,
        "opennmt_tf": OpenNMTTF,
        "torch_transformer": TorchTransformer,
    },
    module="keras_addnorm.interop.families",
)
names = _TABLE.names
register = _TABLE.register
get = _TABLE.get
name_of = _TABLE.name_of
serialize = _TABLE.serialize

# Kinds of models that look like one of ours, and what they need that is not there.
_REFUSED = {
    "nllb-moe": "a mixture of experts",
    "switch_transformers": "a mixture of experts",
    "longt5": "local attention with global tokens",
    "led": "local attention with global tokens",
    "bigbird_pegasus": "sparse attention",
    "pegasus_x": "local attention with global tokens",
    "prophetnet": "attention to several future tokens",
    "fsmt": "texts split by Moses' rules and BPE (fairseq's own .pt files are read, as weights)",
    "encoder-decoder": "two models of different families",
    "whisper": "sound in place of text",
    "speech_to_text": "sound in place of text",
    "seamless_m4t": "an encoder and a decoder for sound",
    "seamless_m4t_v2": "an encoder and a decoder for sound",
    "bert": "an encoder without a decoder",
    "roberta": "an encoder without a decoder",
    "xlm-roberta": "an encoder without a decoder",
    "plbart": "the tokenizer of PLBART, whose languages are those of programs",
    "blenderbot": "the tokenizer of Blenderbot",
    "blenderbot-small": "the tokenizer of Blenderbot-small",
}


def of_settings(settings: Mapping[str, Any]) -> Family:
    """Return the family that a `config.json` names.

    Args:
        settings: What the file says.

    Returns:
        The family.

    Raises:
        ValueError: If there is no such family here; of some, the message says what they need.
    """
    name = settings.get("model_type")
    if isinstance(name, str) and name in _REFUSED:
        raise ValueError(
            f"A model of the family {name!r} cannot be loaded: it needs {_REFUSED[name]}, which "
            f"is not there in keras_addnorm. Expected one of {', '.join(names())}."
        )
    if name not in names():
        own_code = " It needs Python code of its own (auto_map), which is not run here."
        raise ArgumentError(
            "The config names no family."
            if not isinstance(name, str)
            else f"Models of the family {name!r} are not read here."
            f"{own_code if 'auto_map' in settings else ''}",
            f"a model_type among {', '.join(names())}",
            value=name,
        )
    return get(name)
