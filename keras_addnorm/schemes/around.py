"""Schemes that go around another one of one stream, and ask it for all but their own step."""

import dataclasses
from typing import ClassVar

from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.basics.table import ENTRY
from keras_addnorm.schemes.plan import StackPosition
from keras_addnorm.schemes.pre_ln import PreLN
from keras_addnorm.schemes.scheme import ResidualScheme
from keras_addnorm.schemes.streams import StreamScheme


@dataclasses.dataclass(frozen=True)
class AroundScheme(ResidualScheme):
    """What schemes around another one share: the scheme inside, and what is asked of it.

    Args:
        of: The scheme inside, one of one stream.

    Raises:
        TypeError: If `of` is no scheme.
        ValueError: If `of` has several streams, or is of the same class.
    """

    of: ResidualScheme = dataclasses.field(default_factory=PreLN, metadata=ENTRY)

    entry: ClassVar[str]
    """The name in configs."""

    scales: ClassVar[str]
    """What is scaled, in an error."""

    own_idea: ClassVar[str]
    """A sentence that follows the idea of the scheme inside."""

    def __post_init__(self) -> None:
        own = type(self).__name__
        if not isinstance(self.of, ResidualScheme):
            raise ArgumentTypeError(
                f"{own} goes around another scheme.",
                "a ResidualScheme, such as PostLN()",
                f"By name: keras_addnorm.schemes.get({{'name': '{self.entry}', 'of': 'post_ln'}}).",
                of=self.of,
            )
        if isinstance(self.of, type(self) | StreamScheme):
            raise ArgumentError(
                f"{own} scales {self.scales}, once.",
                f"a scheme of one stream without {own}",
                of=self.of,
            )

    @property
    def idea(self) -> str:
        """The sentence of the scheme inside, and one of what is around it."""
        return self.of.idea and f"{self.of.idea} {self.own_idea}"

    @property
    def needs_final_norm(self) -> bool:
        """Whether the scheme inside needs a norm at the end of the stack."""
        return self.of.needs_final_norm

    @property
    def needs_embedding_norm(self) -> bool:
        """Whether the scheme inside needs a norm at the start of the stack."""
        return self.of.needs_embedding_norm

    @property
    def needs_scale_invariant_norm(self) -> bool:
        """Whether norms have to undo factors on the stream of the scheme inside."""
        return self.of.needs_scale_invariant_norm

    def embedding_gain(self, position: StackPosition) -> float:
        """Return that of the scheme inside."""
        return self.of.embedding_gain(position)
