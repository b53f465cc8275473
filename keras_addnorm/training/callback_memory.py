"""What callbacks remember of earlier epochs, for checkpoints: which are known, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from keras_addnorm.basics.errors import ArgumentError

_callbacks = keras.callbacks

# The attributes in which callbacks of Keras remember earlier epochs.
_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    _callbacks.EarlyStopping: ("wait", "best", "best_epoch", "stopped_epoch"),
    _callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
    _callbacks.ModelCheckpoint: ("best",),
    _callbacks.TensorBoard: ("_global_train_batch", "_global_test_batch"),
    # The rest of what they need is in the optimiser, in a file, or nowhere.
    _callbacks.CSVLogger: (),
    _callbacks.LearningRateScheduler: (),
    _callbacks.RemoteMonitor: (),
    _callbacks.SwapEMAWeights: (),
    _callbacks.TerminateOnNaN: (),
}


def require_known(callbacks: Mapping[str, Any]) -> None:
    """Raises a `ValueError` if a checkpoint cannot hold what a callback remembers."""
    for name, callback in callbacks.items():
        if _has_methods(callback):
            continue
        if _attributes(callback) is None:
            known = ", ".join(sorted(one.__name__ for one in _ATTRIBUTES))
            raise ArgumentError(
                f"`remembering` has a callback {name!r} whose memory is not known.",
                f"one of Keras' {known}, or one with methods memory() and remember(memory)",
                "Pass it to `fit` alone if a resumed training may go on without what it remembers.",
                value=callback,
            )
        if why := _cannot_be_kept(callback):
            raise ValueError(
                f"`remembering` has a {type(callback).__name__} {name!r} that cannot go on where "
                f"it was: {why}"
            )


def memory_of(callback: Any) -> dict[str, Any]:
    """Returns what a callback remembers, as JSON can hold it."""
    if _has_methods(callback):
        memory: dict[str, Any] = callback.memory()
        return memory
    # Some are there only once a training has begun.
    return {
        name: _plain(getattr(callback, name))
        for name in _attributes(callback) or ()
        if hasattr(callback, name)
    }


def remember(callback: Any, memory: Mapping[str, Any]) -> None:
    """Gives a callback what it remembered; a `ValueError` says that it was not this one."""
    if _has_methods(callback):
        callback.remember(memory)
        return
    known = _attributes(callback) or ()
    for name, value in memory.items():
        # It comes from a file.
        if name not in known or not isinstance(value, int | float | None):
            raise ArgumentError(
                f"A checkpoint has the memory of another callback than {type(callback).__name__}.",
                f"numbers for {', '.join(known) or 'nothing'}",
                received=f"{name!r:.50}: {value!r:.50}",
            )
        setattr(callback, name, value)


def _has_methods(callback: Any) -> bool:
    return hasattr(callback, "memory") and hasattr(callback, "remember")


def _attributes(callback: Any) -> tuple[str, ...] | None:
    found = (names for kind, names in _ATTRIBUTES.items() if isinstance(callback, kind))
    return next(found, None)


def _cannot_be_kept(callback: Any) -> str:
    """Why the memory of a callback cannot be kept; empty if it can."""
    if getattr(callback, "restore_best_weights", False):
        return (
            "restore_best_weights=True keeps the best weights in memory, and no checkpoint has "
            "them. Pass restore_best_weights=False, and keras.callbacks.ModelCheckpoint("
            "'best.weights.h5', save_best_only=True, save_weights_only=True) beside it, whose file "
            "has the best weights after the training."
        )
    if getattr(callback, "save_freq", "epoch") != "epoch":
        return (
            f"with save_freq={callback.save_freq} it counts batches, and in an epoch that is "
            "resumed Keras counts them anew. Pass save_freq='epoch', and Checkpoints(..., "
            "every_batches=...) for files within an epoch."
        )
    if getattr(callback, "append", True) is False:
        return "with append=False each `fit` begins its file anew. Pass append=True."
    if getattr(callback, "swap_on_epoch", False):
        return (
            "with swap_on_epoch=True the average has taken the place of the weights when the "
            "checkpoint of an epoch is written. Pass swap_on_epoch=False."
        )
    return ""


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, int) else float(value)
