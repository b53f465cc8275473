"""Which of several translations is nearest to a reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from keras_addnorm.basics.translation import Translation


def nearest(
    hypotheses: Sequence[Translation],
    reference: str | None,
    nearness: Callable[[str, str], float],
) -> tuple[str, float, float | None]:
    """Returns the hypothesis nearest to a reference, its score and nearness; else the best one.

    Of equally near ones it is the first.
    """
    if reference is None:
        return (*hypotheses[0], None)
    near = [nearness(text, reference) for text, _ in hypotheses]
    chosen = max(range(len(near)), key=lambda index: (near[index], -index))
    return (*hypotheses[chosen], near[chosen])
