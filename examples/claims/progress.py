"""What short trainings without and with a warm-up say about a scheme."""

from __future__ import annotations

from keras_addnorm.diagnostics import Stability

TRAINED = 0.5  # of the way from word frequencies to the best run


def progress(loss: float, floor: float, best: float) -> float:
    """How far a run came.

    Args:
        loss: Its loss.
        floor: The loss of word frequencies alone.
        best: The lowest loss of the runs that it is compared with.

    Returns:
        0 at the floor, 1 at the best run.
    """
    return (floor - loss) / max(floor - best, 1e-9)


def observed(without: float, with_warmup: float) -> str:
    """The verdict of two runs that differ in the warm-up.

    Args:
        without: Progress of the run without one.
        with_warmup: Progress of the run with one.

    Returns:
        The value of a `Stability`.
    """
    if without >= TRAINED:
        return Stability.TRAINS.value
    if with_warmup >= TRAINED:
        return Stability.NEEDS_WARMUP.value
    return Stability.WILL_NOT_TRAIN.value
