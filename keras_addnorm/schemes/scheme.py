"""The interface of residual schemes, and the data that schemes and `AddNorm` exchange."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from keras_addnorm.basics.argument_checks import is_whole

if TYPE_CHECKING:
    import keras

Tensor = Any
"""A backend tensor: `tf.Tensor`, `jax.Array`, `torch.Tensor` or a symbolic `KerasTensor`."""

NormSlot = Literal["pre_norm", "branch_norm", "post_norm"]


class StreamState(NamedTuple):
    """What travels from sublayer to sublayer, through one stack: a tree of tensors.

    Attributes:
        streams: The streams, `(B, T, D)` each (or parts of one, `(B, T, D/m)`).
        memory: What the scheme keeps of sublayers before, oldest first, `(B, T, D)` each.
    """

    streams: tuple[Tensor, ...] = ()
    memory: tuple[Tensor, ...] = ()


State = Tensor | StreamState
"""What a stack hands from sublayer to sublayer: a stream, or the state of several."""


@dataclasses.dataclass(frozen=True)
class StackPosition:
    """Where a sublayer stands in the whole model, in plain numbers.

    Schemes that depend on it (DeepNorm, Mix-LN, ...) read it; the others ignore it.

    Args:
        num_encoder_layers: Depth of the encoder; 0 for a decoder-only model.
        num_decoder_layers: Depth of the decoder; 0 for an encoder-only model.
        side: `"encoder"` or `"decoder"`.
        layer_index: Index of the layer in its stack, from 0.
        sublayer: `"self_attention"`, `"cross_attention"` or `"feed_forward"`; `None` while the
            position is that of a whole layer.
        sublayers: All sublayers of a layer of this stack, pruned ones too, in the order in which
            they run; empty while the position is that of a whole layer.

    Raises:
        ValueError: If `side` is unknown or `layer_index` lies outside the stack.
    """

    num_encoder_layers: int
    num_decoder_layers: int
    side: Literal["encoder", "decoder"]
    layer_index: int = 0
    sublayer: str | None = None
    sublayers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.sublayers, tuple | list):
            raise ValueError(
                "A layer has sublayers, by their names. Expected a tuple of them. "
                f"Received: sublayers={self.sublayers!r}"
            )
        object.__setattr__(self, "sublayers", tuple(self.sublayers))  # files have lists
        for name in ("num_encoder_layers", "num_decoder_layers", "layer_index"):
            if not is_whole(getattr(self, name)):
                raise ValueError(
                    f"A place in a model is counted. Expected an int {name}. "
                    f"Received: {getattr(self, name)!r}"
                )
        if not isinstance(self.sublayer, str | None):
            raise ValueError(
                "A sublayer has a name. Expected a str, or None. "
                f"Received: sublayer={self.sublayer!r}"
            )
        if self.side not in ("encoder", "decoder"):
            raise ValueError(
                "A stack position needs a side. Expected 'encoder' or 'decoder'. "
                f"Received: side={self.side!r}"
            )
        if not 0 <= self.layer_index < self.depth:
            raise ValueError(
                f"The layer lies outside its stack. Expected 0 <= layer_index < {self.depth} "
                f"(the depth of the {self.side}). Received: layer_index={self.layer_index}. "
                f"Set num_{self.side}_layers to the number of layers that the {self.side} has."
            )

    @property
    def depth(self) -> int:
        """Number of layers in the stack on this side."""
        return self.num_encoder_layers if self.side == "encoder" else self.num_decoder_layers

    @property
    def sublayer_index(self) -> int:
        """Index of the sublayer in its stack, from 0."""
        return self.layer_index * len(self.sublayers) + self._index_in_layer

    @property
    def num_sublayers(self) -> int:
        """Number of sublayers in the stack on this side."""
        return self.depth * len(self.sublayers)

    @property
    def is_first_in_layer(self) -> bool:
        """Whether no sublayer of the same layer runs before."""
        return self._index_in_layer == 0

    @property
    def is_last_in_layer(self) -> bool:
        """Whether no sublayer of the same layer runs after."""
        return self._index_in_layer == len(self.sublayers) - 1

    @property
    def _index_in_layer(self) -> int:
        if self.sublayer not in self.sublayers:
            raise ValueError(
                "Where a sublayer stands among those of its layer is not known. Expected a "
                "position with `sublayer` and all `sublayers` of the layer. Received: "
                f"sublayer={self.sublayer!r}, sublayers={self.sublayers}. Say "
                'position.at("feed_forward", ("self_attention", "feed_forward")); layers do that.'
            )
        return self.sublayers.index(self.sublayer)

    def at(self, sublayer: str, sublayers: tuple[str, ...] = ()) -> StackPosition:
        """Return the position of one sublayer of this layer, among all that the layer has."""
        return dataclasses.replace(self, sublayer=sublayer, sublayers=sublayers)

    def to_dict(self) -> dict[str, Any]:
        """Return the config from which `get` makes an equal position."""
        return dataclasses.asdict(self)

    @classmethod
    def get(cls, identifier: StackPosition | dict[str, Any] | None) -> StackPosition | None:
        """Return a position from an instance, from its config, or `None`."""
        known = {field.name for field in dataclasses.fields(cls)}
        if isinstance(identifier, dict) and identifier.keys() <= known:
            return cls(**identifier)
        if not isinstance(identifier, cls | None):
            raise ValueError(
                "A place in a model is a StackPosition. Expected one, or a dict of its fields: "
                f"{', '.join(sorted(known))}. Received: {identifier!r:.80}"
            )
        return identifier


def require_position(position: StackPosition | None, scheme: str) -> StackPosition:
    """Return the position, or say that the scheme cannot do without."""
    if position is None:
        raise ValueError(
            f"{scheme} depends on where in the model a sublayer stands, which is not known here. "
            "Expected a StackPosition. Received: position=None. Pass "
            "position=StackPosition(num_encoder_layers, num_decoder_layers, side, layer_index)."
        )
    return position


@dataclasses.dataclass(frozen=True)
class LearnedScale:
    """A learned factor, on the branch or on the skip connection.

    Args:
        initial_value: Value that the factor starts at.
        per_channel: Whether each channel has its own factor (LayerScale, Admin) or all share one
            (ReZero).
    """

    initial_value: float
    per_channel: bool


Values = float | tuple["Values", ...]
"""A number, or nested tuples of numbers."""


@dataclasses.dataclass(frozen=True)
class LearnedArray:
    """A learned array of a scheme's own: coefficients of a mix of streams, a query over depth.

    It is float32 under mixed precision, and never cast.

    Args:
        name: The name that the scheme finds it under.
        shape: Its sizes: numbers, `"D"` for the width of the residual stream, and `"D/4"` for a
            quarter of it.
        initial_value: Where it starts: a number, or nested tuples of its shape.
    """

    name: str
    shape: tuple[int | str, ...]
    initial_value: Values

    def sizes(self, hidden_dim: int) -> tuple[int, ...]:
        """Return the shape for a stream of this width."""
        return tuple(
            size if isinstance(size, int) else _part(size, hidden_dim) for size in self.shape
        )


def _part(size: str, hidden_dim: int) -> int:
    name, _, divisor = size.partition("/")
    parts = int(divisor or 1) if name == "D" else 0
    if parts < 1 or hidden_dim % parts:
        raise ValueError(
            "An array of the scheme's has a size that there is not. Expected a number, 'D', or "
            f"'D/m' with an m that divides D = {hidden_dim}. Received: {size!r}"
        )
    return hidden_dim // parts


@dataclasses.dataclass(frozen=True)
class ExtraLayer:
    """A Keras layer of a scheme's own, beyond norms and factors.

    Args:
        name: The name that the scheme finds it under, and that weight files know it by.
        make: Called as `make(hidden_dim, dtype=..., name=...)` with the width of the residual
            stream, D; returns the layer, built. Say a module's function, not a lambda: plans are
            compared.
    """

    name: str
    make: Callable[..., keras.layers.Layer]


@dataclasses.dataclass(frozen=True)
class ResidualPlan:
    """The parts that a scheme needs at one place of the stack.

    Args:
        norm_slots: Which of `"pre_norm"`, `"branch_norm"` and `"post_norm"` to create.
        branch_scale: The learned factor on the branch, or `None`.
        skip_gain: Constant factor on the skip connection (DeepNorm's alpha).
        init_gain: Factor on the initial value, output and feed-forward kernels (DeepNorm's beta,
            Sub-LN's gamma).
        skip_scale: The learned factor on the skip connection, or `None`.
        input_gain: Constant factor on what the sublayer reads (LN-scaling's `1 / sqrt(l)`).
        inner_norm: Whether the sublayer normalises what its output projection reads (Sub-LN).
        extra_layers: Layers of the scheme's own.
        arrays: Learned arrays of the scheme's own; their order is that in files of weights.
        settings: What the scheme wants to know again when it is called, such as where in its layer
            the sublayer stands: plain numbers, for instance a `NamedTuple` of them.
        query_key_norm: Whether an attention normalises queries and keys (HybridNorm).
        value_norm: Whether an attention normalises values.
        query_key_init_gain: Factor on the initial query and key kernels (DS-Init).
        post_norm_gain: Factor by which the input of `post_norm` is smaller than the scheme means;
            the norm makes up for it with a smaller epsilon (folded gains).

    Raises:
        ValueError: If a norm slot is unknown, or a name is taken twice.
    """

    norm_slots: tuple[NormSlot, ...] = ()
    branch_scale: LearnedScale | None = None
    skip_gain: float = 1.0
    init_gain: float = 1.0
    skip_scale: LearnedScale | None = None
    input_gain: float = 1.0
    inner_norm: bool = False
    extra_layers: tuple[ExtraLayer, ...] = ()
    arrays: tuple[LearnedArray, ...] = ()
    settings: Any = ()
    query_key_norm: bool = False
    value_norm: bool = False
    query_key_init_gain: float = 1.0
    post_norm_gain: float = 1.0

    def __post_init__(self) -> None:
        if unknown := [slot for slot in self.norm_slots if slot not in get_args(NormSlot)]:
            raise ValueError(
                "The plan asks for a norm at a place that there is not. Expected norm_slots among "
                f"{get_args(NormSlot)}. Received: {unknown}. A norm elsewhere is an ExtraLayer."
            )
        own: tuple[ExtraLayer | LearnedArray, ...] = (*self.extra_layers, *self.arrays)
        names = [*self.norm_slots, *(part.name for part in own)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                "Each part of a plan needs a name of its own, because weight files know it by "
                f"that. Received more than once: {twice}"
            )


class ResidualParts:
    """The parts of a plan under their names, as `AddNorm` has made them.

    `parts.pre_norm(x)`, `parts.branch_norm(x)`, `parts.post_norm(x)` normalise; `branch_scale` and
    `skip_scale` are the learned factors, a scalar or one value a channel; a layer or an array of
    the scheme's own goes by the name that the plan gives it. At the end of a stack, where the
    scheme closes it, `parts.final_norm(x)` normalises. A part that the plan does not ask for is an
    error that says so.

    Args:
        plan: The plan that the parts were made from, with its constants.
        padding_mask: `(B, T)`, True at real positions, or `None`; norms know it already.
        **made: The parts by name.
    """

    def __init__(self, plan: ResidualPlan, padding_mask: Tensor | None = None, **made: Any) -> None:
        self.plan = plan
        self.padding_mask = padding_mask
        self.__dict__.update(made)

    def __getattr__(self, name: str) -> Any:
        # Only called for what is not there.
        asked_for = [part for part in self.__dict__ if part not in ("plan", "padding_mask")]
        raise AttributeError(
            f"The scheme used the part '{name}', which its plan does not ask for. Expected one of "
            f"{asked_for}. Add it to the ResidualPlan: norms to norm_slots, learned factors as "
            "branch_scale or skip_scale, anything else to arrays or extra_layers."
        )


@dataclasses.dataclass(frozen=True)
class Folding:
    """A scheme without its gains, and into which weights they go; see `models.fold`.

    Args:
        scheme: What computes the same without gains.
        branch_gain: Factor for the kernel and bias of the sublayer's output projection, a number
            or one a channel.
        pre_norm_gain: Factor for the gain and offset of `pre_norm`.
        post_norm_gain: Factor by which the input of `post_norm` has become smaller. The norm has
            to make up for it: most do with a smaller epsilon, that of the plan of `scheme` if it
            has this `post_norm_gain`, else that of all norms of the side.
    """

    scheme: ResidualScheme
    branch_gain: Any = 1.0
    pre_norm_gain: float = 1.0
    post_norm_gain: float = 1.0


class ResidualScheme(abc.ABC):
    """How the output of a sublayer `F` is added to the residual stream `x`.

    `f = F(branch_input(x))`, then `y = merge(x, f)`. A scheme is a frozen dataclass: it holds
    plain numbers, owns no weights, and says in `plan` which parts `AddNorm` has to make for it.

    A scheme of your own implements the three methods, says whether a stack ends with a norm
    (`needs_final_norm`) and is registered with `keras_addnorm.schemes.register` so that models
    that use it can be saved.

    Layers run every scheme by one protocol. A stack opens a state, each of its sublayers reads
    from it and writes to it, and the stack closes it:

    ```python
    state = scheme.open(x)
    for sublayer in stack:
        state = scheme.prepare(state, parts)
        state = scheme.write(state, sublayer(scheme.read(state, parts)), parts)
    y = scheme.close(state, parts)
    ```

    One stream is its own state: `read` and `write` are `branch_input` and `merge`, nothing is
    prepared, and only the final norm closes. See `StreamScheme` for several streams.
    """

    @property
    @abc.abstractmethod
    def needs_final_norm(self) -> bool:
        """Whether the stack has to end with a norm, because the stream leaves its last layer raw.

        A class attribute will do where it does not depend on the scheme's fields.
        """

    @property
    def needs_embedding_norm(self) -> bool:
        """Whether the stack has to begin with a norm of what it is given (residual scalars)."""
        return False

    @property
    def needs_scale_invariant_norm(self) -> bool:
        """Whether norms have to undo factors on the stream (attention residuals)."""
        return False

    @abc.abstractmethod
    def plan(self, position: StackPosition | None) -> ResidualPlan:
        """Say which parts are needed at this place of the stack."""

    @abc.abstractmethod
    def branch_input(self, x: Tensor, parts: ResidualParts) -> Tensor:
        """Return what the sublayer reads."""

    @abc.abstractmethod
    def merge(self, residual: Tensor, branch: Tensor, parts: ResidualParts) -> Tensor:
        """Return the residual stream with the sublayer's output merged into it."""

    def open(self, x: Tensor) -> State:
        """Return the state at the bottom of a stack, of the embeddings `(B, T, D)`."""
        return x

    def prepare(self, state: State, parts: ResidualParts) -> State:
        """Return the state as `read` and `write` are to find it.

        What both of them need of the state is computed here, once a sublayer.

        Args:
            state: What the sublayer before has written, or `open` has made.
            parts: The parts of the plan.

        Returns:
            The state itself, unless the scheme says otherwise.
        """
        return state

    def read(self, state: State, parts: ResidualParts) -> Tensor:
        """Return what the sublayer reads, `(B, T, D)`."""
        return self.branch_input(state, parts)

    def write(self, state: State, branch: Tensor, parts: ResidualParts) -> State:
        """Return the state with the sublayer's output in it."""
        return self.merge(state, branch, parts)

    def collapse(self, state: State) -> Tensor:
        """Return one stream `(B, T, D)`, without weights: for a lone layer, and for reports."""
        return state

    def close(self, state: State, parts: ResidualParts) -> Tensor:
        """Return what leaves the stack, `(B, T, D)`: one stream, normalised if need be.

        Args:
            state: The state after the last sublayer.
            parts: The arrays of `end_plan`, and `final_norm` if the scheme needs one.

        Returns:
            The output of the stack.
        """
        x = self.collapse(state)
        return parts.final_norm(x) if self.needs_final_norm else x

    def end_plan(self, position: StackPosition) -> ResidualPlan:
        """Say which arrays `close` needs.

        Args:
            position: That of the stack's last sublayer.

        Returns:
            A plan of arrays only; of none, unless the scheme says otherwise.
        """
        return ResidualPlan()

    def enter(self, x: State) -> tuple[State, Callable[[State], State]]:
        """Return the state of what a layer is given, and what makes the layer's output of a state.

        A stream is opened, and collapsed at the end. A state is handed on to the next layer.

        Args:
            x: A stream `(B, T, D)`, or a state of this scheme.

        Returns:
            The state, and a function of the state after the layer's last sublayer.

        Raises:
            ValueError: If a scheme of one stream is given the state of several.
        """
        if isinstance(x, StreamState):
            raise ValueError(
                "An Add & Norm or a layer was given a state of several streams, and its scheme has "
                f"one stream. Expected a tensor. Received: {len(x.streams)} streams and "
                f"{len(x.memory)} memories, with {self!r}. All layers of a stack need the same "
                "scheme."
            )
        return x, unchanged

    def coefficients(self, state: State, parts: ResidualParts) -> dict[str, Tensor]:
        """Return the numbers by which a sublayer reads, mixes and writes, for reports.

        Args:
            state: The state before the sublayer.
            parts: The parts of the plan.

        Returns:
            Among others `"read"` and `"write"`, `(..., n)`; `"mixing"`, `(..., n, n)`, with a row
            for each stream that is made; and `"depth"`, `(..., k)`, the weights over k sources.
        """
        return {}

    def shift(self, state: State, offset: Tensor) -> State:
        """Return the state of a stream that has moved by an offset `(B, T, D)`, for reports."""
        return state + offset

    def reads_stream(self, plan: ResidualPlan) -> bool:
        """Tell whether the sublayer reads the stream itself, as it does in Post-LN.

        Then `AddNorm` takes its output alone; elsewhere it needs a call of `branch_input` first.
        `read` itself is asked, with something that nothing can be computed with.

        Args:
            plan: The plan at one place.

        Returns:
            Whether `read` hands on what was opened.
        """
        stream, parts = object(), ResidualParts(plan)
        try:
            return self.read(self.prepare(self.open(stream), parts), parts) is stream
        except Exception:
            return False

    def embedding_gain(self, position: StackPosition) -> float:
        """Return the factor on the initial token embeddings of one side of a model (T-Fixup).

        Args:
            position: A place on that side; with shared embeddings, the encoder's.

        Returns:
            1, unless the scheme wants others.
        """
        return 1.0

    def fold(self, plan: ResidualPlan, branch_scale: Tensor | None) -> Folding:
        """Return the scheme without its gains, and the factors that the weights take over.

        Args:
            plan: The plan at one place. The scheme that remains has to be the same at all places.
            branch_scale: The learned factor at that place, `None` where there is none.

        Returns:
            The scheme itself and no gains, unless it has any.
        """
        return Folding(self)

    def without_branch(self, position: StackPosition | None) -> ResidualScheme:
        """Return the scheme for a place whose sublayer is pruned, `F(x) = 0`.

        Any scheme that merges zeros as this one does is right; one that asks for fewer parts is
        better.

        Args:
            position: The place.

        Returns:
            The scheme itself, unless it knows a smaller one.
        """
        return self


def unchanged(state: State) -> State:
    """Return the state."""
    return state
