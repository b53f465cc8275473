"""Values that an argument cannot mean, by the annotation of the argument.

A value that fits the type and is out of range stands in `OUT_OF_RANGE` of `public_calls`.
"""

import inspect
import math
import re


class Nothing:
    """An object that is nothing that any function takes."""

    def __repr__(self):
        return "Nothing()"


NOTHING = Nothing()

# Of each kind, what is none of it.
NO_INT = (2.5, math.nan, "3", b"3", [1], {}, NOTHING)
NO_NUMBER = (math.nan, "0.5", b"0.5", [1.0], {}, NOTHING)
NO_BOOL = (0, 1, 2.5, "no", b"", [], {}, NOTHING)
NO_TEXT = (3, 2.5, b"a", ["a"], {}, NOTHING)
NO_CHOICE = (3.5, "no such choice", b"a", ["a"], {}, {"name": "no such choice"}, NOTHING)
NO_LIST = (3, 2.5, NOTHING)
NO_DICT = (3, "a", ["a"], NOTHING)
NO_CALL = (3, "a", ["a"], NOTHING)
NO_OBJECT = (3, 2.5, "a", ["a"], {}, NOTHING)
NOT_OPTIONAL = (None,)

# The annotations of public signatures. `None` stands for what takes anything: a path is what the
# operating system takes for one, and its own error says what it is not.
WRONG_OF = {
    "int": NO_INT,
    "float": NO_NUMBER,
    "str": NO_TEXT,
    "bool": NO_BOOL,
    "Any": None,
    "tuple[str,...]": NO_LIST,
    "Literal['encoder','decoder']": NO_CHOICE,
    "": None,  # Keras says nothing of its own arguments.
    "str|os.PathLike[str]": None,
}


def wrong_values(annotation):
    """Returns what an argument of this annotation cannot be; `None` of one that takes anything."""
    if annotation is inspect.Parameter.empty:
        annotation = ""
    if isinstance(annotation, type):
        annotation = annotation.__name__
    kind = re.sub(r"\s+|typing\.", "", str(annotation))
    optional = kind.removesuffix("|None")
    if optional not in WRONG_OF:
        raise KeyError(
            f"The annotation {kind!r} is not in the table of wrong values. Add it to WRONG_OF."
        )
    values = WRONG_OF[optional]
    if values is None:
        return None
    return values if optional != kind else (*values, *NOT_OPTIONAL)
