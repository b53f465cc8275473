"""A residual scheme of your own with two streams: Pre-LN's sum, and one that forgets.

    h = LN(x + y)      what the sublayer F reads
    x = x + F(h)       the sum of all
    y = g y + F(h)     the latest count most; g, one learned number a channel, starts at 1/2

The stack opens both, hands them from sublayer to sublayer, and closes them.

python examples/own_streams.py
"""

import dataclasses

import keras
from keras import ops

from keras_addnorm import schemes
from keras_addnorm.layers import TransformerEncoder


@dataclasses.dataclass(frozen=True)
class SumAndLatest(schemes.StreamScheme):
    """Two streams, read as their sum; one more norm at the end of the stack."""

    start: float = 0.5
    needs_final_norm = True

    def plan(self, position):
        return schemes.ResidualPlan(
            norm_slots=("pre_norm",),
            arrays=(schemes.LearnedArray("decay", ("D",), self.start),),
        )

    def open(self, x):
        return schemes.StreamState((x, ops.zeros_like(x)))

    def read(self, state, parts):
        return parts.pre_norm(self.collapse(state))

    def write(self, state, branch, parts):
        x, y = state.streams
        decay = ops.cast(parts.decay, y.dtype)
        return schemes.StreamState((x + branch, decay * y + branch))

    def collapse(self, state):
        x, y = state.streams
        return x + y


# Under a name, so that models that use it can be saved and loaded.
schemes.register("sum_and_latest", SumAndLatest)


def main() -> dict[str, float]:
    """Trains both on the mean of all tokens before, and returns their losses."""
    keras.utils.set_random_seed(1)
    tokens = keras.random.normal((64, 6, 8))
    means = ops.cumsum(tokens, axis=1) / ops.arange(1, 7, dtype="float32")[:, None]
    losses = {}
    for scheme in ("pre_ln", "sum_and_latest"):
        inputs = keras.Input((6, 8))
        encoded = TransformerEncoder(2, num_heads=2, intermediate_dim=16, scheme=scheme)(inputs)
        model = keras.Model(inputs, keras.layers.Dense(8)(encoded))
        model.compile(keras.optimizers.Adam(1e-2), "mse")
        losses[scheme] = model.fit(tokens, means, epochs=8, verbose=0).history["loss"][-1]
        print(f"{scheme:14} {model.count_params():6,} parameters, loss {losses[scheme]:.4f}")
    return losses


if __name__ == "__main__":
    main()
