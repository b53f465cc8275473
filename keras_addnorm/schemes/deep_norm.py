"""DeepNorm: Post-LN with a stronger skip and smaller initial kernels, for very deep stacks."""

import dataclasses

from keras_addnorm.basics.argument_checks import require_finite
from keras_addnorm.basics.errors import ArgumentError
from keras_addnorm.schemes.plan import ResidualParts, ResidualPlan, StackPosition, Tensor
from keras_addnorm.schemes.post_ln import PostLN
from keras_addnorm.schemes.scheme import Folding, ResidualScheme


@dataclasses.dataclass(frozen=True)
class DeepNorm(ResidualScheme):
    """`y = LN(alpha x + F(x))`, with the kernels of value, output and feed-forward times `beta`.

    With `N` encoder and `M` decoder layers (table 2 of the paper):

    | model           | alpha              | beta                |
    |-----------------|--------------------|---------------------|
    | encoder only    | (2N)^(1/4)         | (8N)^(-1/4)         |
    | decoder only    | (2M)^(1/4)         | (8M)^(-1/4)         |
    | both: encoder   | 0.81 (N^4 M)^(1/16) | 0.87 (N^4 M)^(-1/16) |
    | both: decoder   | (3M)^(1/4)         | (12M)^(-1/4)        |

    Args:
        alpha: The gain on the skip; `None` to compute it from the position.
        beta: The gain on the initial kernels; `None` to compute it from the position.

    Raises:
        ValueError: On use without a position, if `alpha` or `beta` is left to be computed.

    Reference:
        Wang et al., "DeepNet: Scaling Transformers to 1,000 Layers", 2022 (arXiv:2203.00555).
    """

    alpha: float | None = None
    beta: float | None = None
    needs_final_norm = False
    idea = "Post-LN with a stronger skip: the old stream counts for more."

    def __post_init__(self) -> None:
        given = {"alpha": self.alpha, "beta": self.beta}
        given = {name: gain for name, gain in given.items() if gain is not None}
        require_finite("DeepNorm has two gains.", **given)

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm after the sum, and set both gains."""
        if self.alpha is not None and self.beta is not None:
            alpha, beta = self.alpha, self.beta
        elif position is None:
            raise ArgumentError(
                "DeepNorm's gains depend on the depth of the model, which is not known here.",
                "a StackPosition",
                "Pass position=StackPosition(num_encoder_layers, num_decoder_layers, side), "
                "or both gains: scheme={'name': 'deep_norm', 'alpha': ..., 'beta': ...}.",
                received="position=None",
            )
        else:
            alpha, beta = _gains(position)
            alpha = alpha if self.alpha is None else self.alpha
            beta = beta if self.beta is None else self.beta
        return ResidualPlan(norm_slots=("post_norm",), skip_gain=alpha, init_gain=beta)

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `LN(alpha x + f)`."""
        return parts.post_norm(parts.plan.skip_gain * residual + branch)

    def fold(self, plan: ResidualPlan, branch_scale: Tensor | None) -> Folding:
        """Divide the sum by `alpha`: Post-LN remains."""
        return Folding(PostLN(), branch_gain=1 / plan.skip_gain, post_norm_gain=plan.skip_gain)


def _gains(position: StackPosition) -> tuple[float, float]:
    n, m = position.num_encoder_layers, position.num_decoder_layers
    if n == 0 or m == 0:
        return (2 * position.depth) ** 0.25, (8 * position.depth) ** -0.25
    if position.side == "encoder":
        return 0.81 * (n**4 * m) ** (1 / 16), 0.87 * (n**4 * m) ** (-1 / 16)
    return (3 * m) ** 0.25, (12 * m) ** -0.25
