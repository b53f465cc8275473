"""Words that the message of a command must not have: people type flags and names of files."""

import re

_PRODUCTS = "TensorFlow|SavedModel|SentencePiece|MirroredStrategy"
# Constants, types, calls, arguments with a value, and classes.
PYTHON_WORDS = re.compile(
    r"\b(?:None|True|False|dict|tuple|str|int|bool|float|list of str)\b"
    r"|\b\w+\((?!e?s\))"
    r"|(?<![.\w])[a-z]+_[a-z_]+ ?="
    rf"|\b(?!{_PRODUCTS})[A-Z][a-z]+[A-Z]\w+"
)
