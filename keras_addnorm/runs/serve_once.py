"""Translates with an exported model in a process that has TensorFlow and nothing else of ours.

Run as a script: `python -P serve_once.py VERSION_FOLDER TEXT...`. Prints one JSON list. It is what
a stranger with the SavedModel and TensorFlow would write: neither Keras nor this package is
imported, and it makes sure that nothing imports them behind its back.
"""

import json
import sys


def main(folder: str, *texts: str) -> None:
    """Prints the translations of some texts by the exported version in a folder."""
    for name in ("keras", "keras_addnorm", "sentencepiece"):
        sys.modules[name] = None  # type: ignore[assignment] # An import fails from here on.
    import tensorflow as tf

    module = tf.saved_model.load(folder)
    outputs = module.signatures["serving_default"](texts=tf.constant(texts))
    print(json.dumps([text.decode("utf-8") for text in outputs["translations"].numpy()]))


if __name__ == "__main__":
    main(*sys.argv[1:])
