"""Loads a folder that harms: it is read, or refused in a sentence, in little memory."""

import tracemalloc
import warnings

from keras_addnorm.basics.printing import printable_lines
from keras_addnorm.interop import load_pretrained, pretrained

LONGEST_SENTENCE = 2100
MEGABYTES = 200


class WasReadError(Exception):
    """All files were read, and the model would be made."""


def make_no_model(monkeypatch):
    """Lets importers stop where all files were read."""

    def stop(*arguments, **options):
        raise WasReadError

    monkeypatch.setattr(pretrained, "Seq2SeqTransformer", stop)


def require_sentence(folder, name, *, family=None, more_bytes=0, what=None):
    """Requires that a folder is read or refused, by the name of its family or of itself."""
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load_pretrained(folder, family)
    except WasReadError:
        pass
    except (ValueError, FileNotFoundError) as error:
        said = str(error)
        assert len(said) <= LONGEST_SENTENCE, said[:300]
        assert printable_lines(said) == said
        assert name in said, (what, said)
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most <= MEGABYTES * 10**6 + more_bytes, (what, more_bytes)
