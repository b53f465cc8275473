"""Garbage collection that does not look at what is there already."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def old_objects_exempt() -> Iterator[None]:
    """Exempts the objects that exist from garbage collection, until it ends.

    For code that collects again and again, such as Keras' quantisation, once for each weight:
    Python would search all that was imported each time. Where a program exempts objects itself
    (`gc.freeze`), nothing is changed.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
