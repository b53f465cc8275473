"""`effective_depth`: what the loss becomes when one sublayer is skipped, for each sublayer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from keras import ops

from keras_addnorm.basics.tensors import to_numpy
from keras_addnorm.diagnostics.batch_loss import BatchLoss, LossLike, parts_of
from keras_addnorm.diagnostics.compiled import compiled
from keras_addnorm.diagnostics.layer_hooks import gate_branches
from keras_addnorm.layers.pruned import PrunedSublayer
from keras_addnorm.layers.sublayers import named_sublayers

Tensor = Any


@dataclasses.dataclass(frozen=True)
class EffectiveDepth:
    """The loss of a batch without each of a model's sublayers; `print` it for a table.

    Attributes:
        loss: The loss with all of them, in the loss's own unit (nats a token by default).
        without: By sublayer, in the order in which they run: the loss when that one gives zeros.

    Example:
        >>> found = EffectiveDepth(loss=2.0, without={"encoder/0/feed_forward": 2.5})
        >>> found.increases
        {'encoder/0/feed_forward': 0.5}
        >>> found.depth
        1.0
    """

    loss: float
    without: Mapping[str, float]

    @property
    def increases(self) -> dict[str, float]:
        """By sublayer, how much larger the loss is without it; negative if it is smaller."""
        return {name: loss - self.loss for name, loss in self.without.items()}

    @property
    def depth(self) -> float:
        """The participation ratio of the increases, (Σ d)² / Σ d², where d > 0.

        It is n if n sublayers matter equally and the others do not matter; 0 if none does; not a
        number if a loss is none.
        """
        increases = np.array(list(self.increases.values()), "float64")
        if not np.all(np.isfinite(increases)):
            return math.nan
        matter = np.maximum(increases, 0.0)
        return float(matter.sum() ** 2 / np.square(matter).sum()) if np.any(matter) else 0.0

    @property
    def summary(self) -> str:
        """The effective depth in a line."""
        return f"Effective depth: {self.depth:.1f} of {len(self.without)} sublayers"

    def __str__(self) -> str:
        width = max(map(len, self.without), default=0)
        rows = [
            f"{name:{width}} {self.without[name]:9.4g} {increase:+9.4f}"
            for name, increase in self.increases.items()
        ]
        head = f"{'skipped':{width}} {'loss':>9} {'change':>9}"
        return "\n".join([self.summary, head, f"{'none':{width}} {self.loss:9.4g}", *rows])


def effective_depth(
    model: Any, batch: tuple[Any, ...], loss: LossLike | None = None
) -> EffectiveDepth:
    """Skip each sublayer of a model in turn, and measure the loss of a batch.

    A skipped sublayer gives zeros, F(x) = 0, and the scheme merges them: with Pre-LN y = x, with
    Post-LN y = LN(x). That is what `prune` does, but here the model stays as it is, and it is
    traced once for all sublayers. Pruned sublayers are left out.

    Args:
        model: A `Seq2SeqTransformer`, or any built Keras model with our layers inside.
        batch: Inputs, labels and, if there are any, sample weights, as the training pipeline gives
            them.
        loss: `loss(labels, outputs)`, or the name of a loss, reduced as Keras does; `None` for what
            `evaluate` gives: the model's `compute_loss`, with all that was compiled or added. For a
            `Seq2SeqTransformer` that is not compiled, `MaskedSparseCategoricalCrossentropy`.

    Returns:
        The losses.

    Raises:
        ValueError: If there is no Add & Norm in the model, or no loss; see `loss_gradients`.

    Reference:
        Veit et al., "Residual Networks Behave Like Ensembles of Relatively Shallow Networks",
        2016 (arXiv:1605.06431), section 4.1: single layers deleted after training.

    Example:
    ```python
    import numpy as np
    from keras_addnorm.diagnostics import effective_depth
    from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

    model = Seq2SeqTransformer(Seq2SeqConfig.preset("micro"))
    batch = {"source": np.array([[5, 6, 7, 2]]), "target": np.array([[1, 8, 9]])}
    print(effective_depth(model, (batch, np.array([[8, 9, 2]]))))
    ```
    """
    parts = parts_of(batch)
    batch_loss = BatchLoss(model, loss)
    names = [
        name
        for name, sublayer in named_sublayers(model).items()
        if not isinstance(sublayer.layer, PrunedSublayer)
    ]

    def loss_with(gates: Tensor) -> Tensor:
        with gate_branches(model, dict(zip(names, ops.unstack(gates), strict=True))):
            return batch_loss(parts)

    batch_loss(parts)  # Not traced: Keras makes the metrics of several losses at the first call.
    # The first row keeps every sublayer; each other one skips one of them.
    rows = np.vstack([np.ones(len(names)), 1 - np.eye(len(names))]).astype("float32")
    losses = compiled(model, lambda: ops.map(loss_with, ops.convert_to_tensor(rows)))()
    whole, *without = map(float, to_numpy(losses))
    return EffectiveDepth(whole, dict(zip(names, without, strict=True)))
