"""Post-LN, the original Transformer's Add & Norm."""

import dataclasses

from keras_addnorm.basics.argument_checks import require_bool
from keras_addnorm.schemes.plan import ResidualParts, ResidualPlan, StackPosition, Tensor
from keras_addnorm.schemes.scheme import ResidualScheme


@dataclasses.dataclass(frozen=True)
class PostLN(ResidualScheme):
    """`y = LN(x + F(x))`.

    Deep Post-LN stacks need a learning-rate warm-up: at the start, the gradients of the last
    layers are large (Xiong et al., 2020).

    Args:
        final_norm: Whether a stack ends with one more norm, behind that of its last layer. The
            paper has none; `torch.nn.Transformer` has one.

    Reference:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.1.
    """

    final_norm: bool = False
    idea = "Add, then norm, as in the Transformer of 2017: the stream passes through every norm."

    def __post_init__(self) -> None:
        require_bool(final_norm=self.final_norm)

    @property
    def needs_final_norm(self) -> bool:
        """Whether there is one more norm."""
        return self.final_norm

    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Ask for a norm after the sum."""
        return ResidualPlan(norm_slots=("post_norm",))

    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return `LN(x + f)`."""
        return parts.post_norm(residual + branch)
