"""`AddNorm`: the residual connection and the normalisation around a sublayer."""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras

from keras_addnorm import norms, schemes
from keras_addnorm.basics.argument_checks import require_epsilon, require_share
from keras_addnorm.basics.arguments import refuse_other_names
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.layers.dropout import Dropout
from keras_addnorm.layers.learned_arrays import make_array
from keras_addnorm.layers.masks import explicit_or_implicit
from keras_addnorm.layers.projection import require_hidden_dim
from keras_addnorm.layers.shapes import ShapeOfInput

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_addnorm")
class AddNorm(ShapeOfInput):
    """The residual connection and normalisation around a sublayer `F`, as a scheme defines them.

    `y = add_norm(x, sublayer)` calls the sublayer on what the scheme lets it read and merges its
    output into the stream: `LN(x + F(x))` by default, Post-LN, or `x + F(LN(x))` in Pre-LN. The
    sublayer is any callable: a Keras layer, a model, a function such as
    `lambda h: attention(h, memory)`. `AddNorm` does not own it: in a layer of your own, keep it as
    an attribute. A Keras layer is called with the same `training`, and with the padding mask where
    it takes one; the mask of `x` is attached to what it reads.

    Where a sublayer has caches or gives attention weights, write the two calls yourself:

    ```python
    h = add_norm.branch_input(x)  # what the sublayer reads: x, or LN(x) in Pre-LN
    f, weights = sublayer(h, return_attention_scores=True)
    y = add_norm(x, f)            # the merged stream: LN(x + f), or x + f in Pre-LN
    ```

    Each `add_norm(x, f)` needs a call of `branch_input` before it, and says so if there was none,
    except where the scheme lets the sublayer read `x` itself: `AddNorm()(x, f) = LayerNorm(x + f)`
    is the box that papers draw.

    A norm at the end of the stack, which Pre-LN and others need, is not part of it: see
    `TransformerEncoderLayer`.

    Norms work on the last axis; their statistics are computed in float32 under mixed precision.
    The mask of `residual` goes on to the output, and to the norms: `batch_norm` leaves padding
    out of its statistics, the others take each position by itself.

    Args:
        scheme: A name of `keras_addnorm.schemes.names()`, a dict with a name and the scheme's
            fields, or a `ResidualScheme`.
        norm: A name of `keras_addnorm.norms.names()`, or a dict with a name and the norm's
            fields.
        epsilon: The norm's small number: for layer norm, added to the variance.
        dropout: Share of the sublayer's output that is dropped before it is merged.
        position: Where the sublayer stands, a `StackPosition` or its config; schemes that depend
            on the depth of the model need it.
        drop_path: Share of the examples that go without the whole branch while training
            (stochastic depth): with Post-LN, `y = LN(x)`. The branches that stay are scaled by
            `1 / (1 - drop_path)`, so that the mean stays. Where a scheme normalises the branch,
            the norm comes first.
        **kwargs: `name`, `dtype` and the other arguments of a Keras layer.

    Raises:
        ValueError: If the scheme or norm is unknown, if the scheme needs a position and there is
            none, if the norm leaks across the positions of a decoder, if the stream and the
            sublayer's output differ in shape, if there is no sublayer, or an output of one that
            has not read, or if a scheme of one stream is given a `StreamState`.
        TypeError: If what is called is no stream and sublayer: a list of both, a class.

    Weights:
        `pre_norm/...`, `branch_norm/...`, `post_norm/...`: those that the scheme asks for.
        `branch_scale`, `skip_scale`: a scalar (ReZero) or `(D,)` (LayerScale, Admin).
        `<name>/...`: the norms and layers of the scheme's own, by the names that it gives them.
        The arrays of the scheme's own, in the order of its plan.

    Example:
    ```python
    import keras
    from keras_addnorm.layers import AddNorm

    x = keras.random.normal((2, 5, 8))
    y = AddNorm()(x, keras.layers.Dense(8))  # LayerNorm(x + Dense(x)), (2, 5, 8)
    y = AddNorm("pre_ln")(x, keras.layers.Dense(8))  # x + Dense(LayerNorm(x))
    ```

    Reference:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.1, and each scheme's own;
        Huang et al., "Deep Networks with Stochastic Depth", 2016 (arXiv:1603.09382), for
        `drop_path`.
    """

    def __init__(
        self,
        scheme: str | dict[str, Any] | schemes.ResidualScheme = "post_ln",
        norm: norms.NormLike = "layer_norm",
        epsilon: float = 1e-6,
        dropout: float = 0.0,
        position: schemes.StackPosition | dict[str, Any] | None = None,
        drop_path: float = 0.0,
        **kwargs: Any,
    ) -> None:
        refuse_other_names(type(self), kwargs)
        super().__init__(**kwargs)
        require_share(dropout=dropout, drop_path=drop_path)
        require_epsilon(epsilon)
        self.scheme = schemes.get(scheme)
        self.norm = norm
        self.epsilon = epsilon
        self.dropout = dropout
        self.position = schemes.StackPosition.get(position)
        self.drop_path = drop_path
        self._make_norm = norms.get(
            norm if self.position is None else norms.for_side(norm, self.position.side)
        )
        self._plan = self.scheme.plan(self.position)
        self._needs_reads = not self.scheme.reads_stream(self._plan)
        # An entry for each read that no write has followed yet. Unlike a number, it is changed
        # safely by several threads; and reads whose output is only looked at do not pile up.
        self._reads: collections.deque[None] = collections.deque(maxlen=10_000)
        # Names of parts that the scheme has asked for, each at least once.
        self._used_parts: collections.deque[str] = collections.deque()
        self._is_of_older_file = False
        self.supports_masking = True

    @property
    def init_gain(self) -> float:
        """Factor that the scheme wants on the sublayer's initial kernels (as DeepNorm does)."""
        return self._plan.init_gain

    @property
    def query_key_init_gain(self) -> float:
        """Factor that the scheme wants on the initial query and key kernels (as DS-Init does)."""
        return self._plan.query_key_init_gain

    @property
    def attention_norms(self) -> tuple[str, ...]:
        """Fields of `AttentionConfig` whose norms the scheme wants (as HybridNorm does)."""
        return tuple(name for name in ("query_key_norm", "value_norm") if getattr(self._plan, name))

    def make_inner_norm(self) -> norms.Norm | None:
        """Return a new norm for the inside of the sublayer, if the scheme wants one (Sub-LN)."""
        if not self._plan.inner_norm:
            return None
        return self._make_norm(epsilon=self.epsilon, dtype=self.dtype_policy, name="inner_norm")

    def build(self, residual_shape: tuple[int | None, ...], branch_shape: Any = None) -> None:
        """Make the parts that the scheme's plan asks for, for a residual `(..., D)`."""
        hidden_dim = require_hidden_dim(residual_shape)
        for name in self._plan.extra_norms:
            self._require_free(name)
        for slot in self._plan.norms:
            norm = self._make_norm(epsilon=self.epsilon, dtype=self.dtype_policy, name=slot)
            if slot == "post_norm":
                norm.epsilon = self._epsilon_behind_the_sum(norm)
            norm.build(residual_shape)
            setattr(self, slot, norm)
        self.branch_scale = self._make_scale("branch_scale", self._plan.branch_scale, hidden_dim)
        self.skip_scale = self._make_scale("skip_scale", self._plan.skip_scale, hidden_dim)
        for extra in self._plan.extra_layers:
            setattr(self, extra.name, self._make_extra(extra, hidden_dim))
        for array in self._plan.arrays:
            self._require_free(array.name)
            setattr(self, array.name, make_array(self, array, hidden_dim))
        self._hidden_dim = hidden_dim
        self._branch_dropout = Dropout(self.dropout, dtype=self.dtype_policy)
        # One random number per example.
        noise_shape = (None, *(1 for _ in residual_shape[1:]))
        self._drop_path = keras.layers.Dropout(
            self.drop_path, noise_shape=noise_shape, dtype=self.dtype_policy
        )

    def __call__(
        self,
        residual: schemes.State,
        branch: Tensor | Callable[..., Tensor] | None = None,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
        read: bool = False,
    ) -> schemes.State:
        """Run a sublayer in its Add & Norm, or one of the two steps around it; see `call`."""
        self._require_stream(residual)
        options = {"padding_mask": padding_mask, "training": training}
        if branch is None:
            self._require_sublayer(branch, read)
            # An unmarked read of an older file is marked in the model that is made from it.
            h = super().__call__(residual, **_given(options | {"read": True}))
            if self._needs_reads:
                self._reads.append(None)
            return h
        if not _is_tensor(branch):
            self._require_callable(branch)
            options = _options_for(branch, padding_mask, training)
            self._require_one_input(branch, options)
            h = self.branch_input(residual, padding_mask, training)
            f = branch(h, **options)
            self._require_output(f)
            return self(residual, f, padding_mask, training)
        if self._needs_reads and not self._reads and not self._is_of_older_file:
            raise ArgumentError(
                f"The Add & Norm '{self.name}' was given a sublayer's output without a call of "
                f"branch_input before, and with {self.scheme!r} a sublayer does not read the "
                "stream x itself.",
                "add_norm(x, sublayer); or, in two calls, h = add_norm.branch_input(x) and "
                "add_norm(x, sublayer(h))",
                "Each call of branch_input is for one add_norm(x, f).",
                received="add_norm(x, f)",
            )
        y = super().__call__(residual, branch, **_given(options))
        # Not before: a call that fails may be made again.
        with contextlib.suppress(IndexError):
            self._reads.pop()
        return y

    def call(
        self,
        residual: schemes.State,
        branch: Tensor | None = None,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
        read: bool = False,
    ) -> schemes.State:
        """Return the sublayer's input, or merge the sublayer's output into the stream.

        Args:
            residual: The residual stream, `(..., D)`; inside a stack whose scheme has several
                streams or a memory, their `StreamState`.
            branch: The sublayer's output, of the same shape.
            padding_mask: `(...)`, True at real positions; `None` for the mask attached to
                `residual`.
            training: Whether to drop parts of the branch, and to use the statistics of this batch
                in a norm that has others.
            read: Whether this is the call of `branch_input`, which has no branch.

        Returns:
            A tensor of the shape of `residual`; the next state if that is a state and there is a
            branch.
        """
        self._require_sublayer(branch, read)
        padding_mask = explicit_or_implicit(padding_mask, residual)
        state, leave = self.scheme.enter(residual)
        if branch is None:
            return self.read(state, padding_mask, training)[0]
        # The call of `branch_input` has prepared the same before.
        state = self.scheme.prepare(state, self._parts(padding_mask, training, self._plan.norms))
        return leave(self.write(state, branch, padding_mask, training))

    def branch_input(
        self, x: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Return what the sublayer reads, `(..., D)`: the first of the two calls around it."""
        return self(x, padding_mask=padding_mask, training=training, read=True)

    def read(
        self,
        state: schemes.State,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> tuple[Tensor, schemes.State]:
        """Return what the sublayer reads, inside a layer that hands a state on.

        ```python
        state, leave = scheme.enter(x)
        h, state = add_norm.read(state)
        state = add_norm.write(state, sublayer(h))
        return leave(state)
        ```

        Args:
            state: The state before the sublayer; of a scheme of one stream, the stream.
            padding_mask: As in `call`.
            training: As in `call`.

        Returns:
            The sublayer's input, `(..., D)`, and the state that its output is written to.
        """
        parts = self._parts(padding_mask, training)
        state = self.scheme.prepare(state, parts)
        h = self.scheme.read(state, parts)
        self._require_shape(h, state, "`branch_input`")
        self._note_used(parts)
        return h, state

    def write(
        self,
        state: schemes.State,
        branch: Tensor,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> schemes.State:
        """Return the state with the sublayer's output in it: the other half of `read`.

        Args:
            state: What `read` has returned.
            branch: The sublayer's output, `(..., D)`.
            padding_mask: As in `call`.
            training: As in `call`.

        Returns:
            The state after the sublayer.
        """
        # HybridNorm adds the branch to what the sublayer has read: a batch counts once.
        parts = self._parts(padding_mask, training, called_before=("pre_norm",))
        shape = self._stream_shape(state)
        if not _may_be_equal(shape, branch.shape):
            raise ArgumentError(
                "The sublayer's output does not fit the residual stream.",
                "both of one shape",
                f"End the sublayer with a projection to {shape[-1]} units.",
                received=f"residual {shape}, branch {tuple(branch.shape)}",
            )
        branch = self._branch_dropout(branch, training=training)
        if "branch_norm" not in self._plan.norm_slots:
            branch = self._drop_path(branch, training=training)
        written = self.scheme.write(state, branch, parts)
        if not isinstance(state, schemes.StreamState):
            self._require_shape(written, state, "`merge`")
        self._note_used(parts)
        self._require_all_used()
        return written

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "scheme": schemes.serialize(self.scheme),
            "norm": self.norm,
            "epsilon": self.epsilon,
            "dropout": self.dropout,
            "position": None if self.position is None else self.position.to_dict(),
            "drop_path": self.drop_path,
        }

    def get_build_config(self) -> dict[str, Any] | None:
        """Return the shapes, and that reads are marked in functional models made of this layer."""
        config = super().get_build_config()
        if config is None or self._is_of_older_file:
            return config
        return {**config, "reads_are_marked": True}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Make the parts again; the functional model of an older file is taken as it is."""
        self._is_of_older_file = not config.get("reads_are_marked", False)
        super().build_from_config(config)

    def _parts(
        self,
        padding_mask: Tensor | None,
        training: bool | None,
        called_before: tuple[str, ...] = (),
    ) -> schemes.ResidualParts:
        if not self.built:
            raise ValueError(
                f"The Add & Norm '{self.name}' has no parts yet. Expected one that is built. Say "
                "add_norm.build((None, None, D)) before, with the width D of the stream."
            )
        # A sum such as x + f carries no mask of Keras' own.
        arguments = {"padding_mask": padding_mask, "training": training}
        made: dict[str, Any] = {}
        for name in self._plan.norms:
            norm = getattr(self, name)
            made[name] = functools.partial(
                norm.again if name in called_before else norm, **arguments
            )
        if "branch_norm" in made:
            branch_norm = made["branch_norm"]
            # Drop path follows the norm, which would undo its scale and add an offset to zeros.
            made["branch_norm"] = lambda f: self._drop_path(branch_norm(f), training=training)
        made |= {name: getattr(self, name) for name in self._plan.parts if name not in made}
        return schemes.ResidualParts(self._plan, padding_mask, training, **made)

    def _make_scale(
        self, name: str, scale: schemes.LearnedScale | None, hidden_dim: int
    ) -> keras.Variable | None:
        if scale is None:
            return None
        return self.add_weight(
            shape=(hidden_dim,) if scale.per_channel else (),
            initializer=keras.initializers.Constant(scale.initial_value),
            name=name,
        )

    def _epsilon_behind_the_sum(self, norm: norms.Norm) -> float:
        gain = self._plan.post_norm_gain
        if gain == 1.0:
            return norm.epsilon
        if norm.epsilon_power is None:
            raise ValueError(
                f"The norm {self.norm!r} cannot make up for the gain that {self.scheme!r} has "
                "folded away: no epsilon of it does. Expected a norm that can, such as "
                "'layer_norm' or 'rms_norm', or the scheme as it is before `fold`."
            )
        return norm.epsilon / gain**norm.epsilon_power

    def _require_stream(self, residual: Any) -> None:
        # A state is a tree of tensors, and no list or tuple of them.
        is_tree = type(residual) in (list, tuple, dict)
        if not is_tree and all(map(_is_tensor, keras.tree.flatten(residual))):
            return
        raise ArgumentTypeError(
            "Add & Norm takes the stream first, and the sublayer beside it.",
            "add_norm(x, sublayer), or add_norm(x, f) with the output f of a sublayer that has "
            "read add_norm.branch_input(x)",
            received=f"{_shown(residual)} as x",
        )

    def _require_sublayer(self, branch: Any, read: bool) -> None:
        # Compared with `is`: rematerialisation on JAX makes tensors of all arguments.
        if branch is None and read is False and not self._is_of_older_file:
            raise ArgumentError(
                f"The sublayer of the Add & Norm '{self.name}' is missing.",
                "add_norm(x, sublayer), or add_norm.branch_input(x) for what the sublayer reads",
                received="add_norm(x)",
            )

    def _require_callable(self, sublayer: Any) -> None:
        if isinstance(sublayer, type):
            raise ArgumentTypeError(
                "The sublayer of an Add & Norm is a class, which has no weights.",
                f"a layer: add_norm(x, {sublayer.__name__}(...))",
                received=_shown(sublayer),
            )
        if not callable(sublayer):
            raise ArgumentTypeError(
                "The sublayer of an Add & Norm is called on what it reads.",
                "a Keras layer or a function, add_norm(x, sublayer), or its output, a tensor",
                received=_shown(sublayer),
            )

    def _require_one_input(self, sublayer: Callable[..., Tensor], options: dict[str, Any]) -> None:
        called = sublayer.call if isinstance(sublayer, keras.layers.Layer) else sublayer
        try:
            signature = inspect.signature(called)
        except (TypeError, ValueError):  # a function that does not say what it takes
            return
        try:
            signature.bind(None, **options)
        except TypeError as error:
            raise ArgumentTypeError(
                "The sublayer of an Add & Norm is called with one input, what it reads, and this "
                f"one cannot be: {error}.",
                "add_norm(x, sublayer) with a function around it: add_norm(x, lambda h: "
                "attention(h, h)) for self-attention, or lambda h: attention(h, memory)",
                received=f"{_shown(sublayer)}, which takes {signature}",
            ) from error

    def _require_output(self, f: Any) -> None:
        if not _is_tensor(f):
            raise ArgumentTypeError(
                "The sublayer of an Add & Norm gave something else than one tensor.",
                "F(h) of the shape of the stream. Where it gives more, attention weights or a "
                "cache, call it yourself: h = add_norm.branch_input(x); f, scores = sublayer(h); "
                "y = add_norm(x, f)",
                received=_shown(f),
            )

    def _stream_shape(self, state: schemes.State) -> tuple[int | None, ...]:
        return (*keras.tree.flatten(state)[0].shape[:-1], self._hidden_dim)

    def _require_shape(self, x: Any, state: schemes.State, method: str) -> None:
        shape = self._stream_shape(state)
        if not _is_tensor(x) or not _may_be_equal(shape, x.shape):
            raise ArgumentTypeError(
                f"The method {method} of {self.scheme!r} returned something else than a tensor of "
                "the stream's shape.",
                f"shape {shape}",
                "Does it end with `return`?" if x is None else "",
                received=f"shape {tuple(x.shape)}" if _is_tensor(x) else _shown(x),
            )

    def _note_used(self, parts: schemes.ResidualParts) -> None:
        self._used_parts.extend(parts.used.difference(self._used_parts))

    def _require_all_used(self) -> None:
        if self._is_of_older_file:  # Its reads may be none of this layer's.
            return
        unused = [part for part in self._plan.parts if part not in self._used_parts]
        if unused:
            raise ArgumentError(
                f"The plan of {self.scheme!r} asks for parts that the scheme never uses: they "
                "would change nothing.",
                f"{', '.join(f'parts.{part}' for part in unused)} in `branch_input` or `merge`",
                "Use them there, or leave them out of the plan.",
                received=f"a plan with {', '.join(unused)}",
            )

    def _require_free(self, name: str) -> None:
        if hasattr(self, name):
            raise ArgumentError(
                "A part of the scheme's own has a name that AddNorm uses itself.",
                "another one",
                received=f"{name!r} from {self.scheme!r}",
            )

    def _make_extra(self, extra: schemes.ExtraLayer, hidden_dim: int) -> keras.layers.Layer:
        self._require_free(extra.name)
        layer = extra.make(hidden_dim, dtype=self.dtype_policy, name=extra.name)
        if not layer.built:
            raise ArgumentError(
                f"The scheme's layer '{extra.name}' has no weights yet, and files could not "
                "restore them.",
                "a built layer",
                "Call its `build` with the shape of its input before it is returned.",
                value=layer,
            )
        return layer


def _is_tensor(value: Any) -> bool:
    # Of any library, as Keras takes them: NumPy's, other backends' and symbolic ones.
    return hasattr(value, "shape") and hasattr(value, "dtype") and not callable(value)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return f"{value!r:.80}"


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _options_for(
    sublayer: Callable[..., Tensor], padding_mask: Tensor | None, training: bool | None
) -> dict[str, Any]:
    """Return what a Keras layer is told besides its input; a function has it from its writer."""
    if not isinstance(sublayer, keras.layers.Layer):
        return {}
    taken = inspect.signature(sublayer.call).parameters
    masks = {name: padding_mask for name in ("padding_mask", "mask") if name in taken}
    return _given({"training": training, **masks})


def _may_be_equal(shape: tuple[int | None, ...], other: tuple[int | None, ...]) -> bool:
    # Sizes that are unknown while tracing are assumed to be equal.
    return len(shape) == len(other) and all(
        a == b or a is None or b is None for a, b in zip(shape, other, strict=True)
    )
