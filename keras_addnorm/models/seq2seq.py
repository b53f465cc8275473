"""`Seq2SeqTransformer`: the encoder-decoder Transformer as a functional Keras model."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import keras

from keras_addnorm import decoding, norms, schemes
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.basics.garbage import old_objects_exempt
from keras_addnorm.basics.label_logits import LabelLogits
from keras_addnorm.basics.suggestions import Elsewhere
from keras_addnorm.decoding.decoder import DecoderInfo
from keras_addnorm.decoding.generate import generate_with
from keras_addnorm.decoding.search import takes_search
from keras_addnorm.layers import PositionalEmbedding, Projection
from keras_addnorm.layers import positions as position_kinds
from keras_addnorm.layers.adapted import (
    CALIBRATED,
    chosen_layers,
    quantize_layers,
    quantized_policies,
)
from keras_addnorm.layers.positional_embedding import SharedTableEmbedding
from keras_addnorm.layers.pruned import within
from keras_addnorm.layers.stacks import TransformerDecoder, TransformerEncoder
from keras_addnorm.models.calibration import quantization_structure, require_storable
from keras_addnorm.models.checks import (
    check_data,
    check_inputs,
    check_names,
    get_optimizer,
    narrowed,
    require_additional_loss,
    require_cross_attention,
    require_finite,
    require_loss_of_logits,
    require_same_vocabularies,
)
from keras_addnorm.models.config import Seq2SeqConfig
from keras_addnorm.models.large_vocabulary import LABELS, ChunkedLoss

Tensor = Any

_PARTS = ("encoder", "decoder", "encoder_embedding", "decoder_embedding", "vocabulary_projection")
_CLONES = "_clones"
"""The attribute of a cloned graph's outputs: the model, and the clones of its layers."""


@keras.saving.register_keras_serializable(package="keras_addnorm")
class Seq2SeqTransformer(keras.Model):
    """An encoder-decoder Transformer: token ids in, logits over the target vocabulary out.

    Inputs are a dict: `"source"` `(B, S)` and `"target"` `(B, T)`, integer ids padded with
    `config.pad_id`; the target starts with `config.start_id`, so that the logits at position `t`
    speak of token `t + 1`. The output is float32 logits `(B, T, V)`.

    Args:
        config: The shape of the model, a `Seq2SeqConfig` or its dict.
        *graph: What `keras.models.clone_model` passes; leave it out.
        **kwargs: `name`, and `dtype` for the dtype policy of all layers.

    Weights:
        Keras keys a functional model's weight file by class, with a counter:
        `layers/positional_embedding` (source, or both when shared),
        `layers/positional_embedding_1` (target), `layers/shared_table_embedding` (what the source
        has of its own beside a shared table), `layers/transformer_encoder`,
        `layers/transformer_decoder`, and `layers/projection` with untied embeddings.

    Example:
    ```python
    import numpy as np
    from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

    model = Seq2SeqTransformer(Seq2SeqConfig.preset("micro", max_length=8))
    source = np.array([[5, 6, 7, 2]])
    logits = model({"source": source, "target": np.array([[1, 8, 9]])})  # (1, 3, 100)
    ids, scores = model.generate(source, num_beams=2, length_penalty=0.6)
    ```

    Reference:
        Vaswani et al., "Attention Is All You Need", 2017, figure 1.
    """

    from_preset = Elsewhere(
        "Write Seq2SeqTransformer(Seq2SeqConfig.preset(name)); it has no trained weights."
    )
    from_pretrained = Elsewhere("Write keras_addnorm.interop.load_pretrained(folder).model.")

    # What `compile` was given.
    guided_alignment: Any = None
    distillation: Any = None
    _chunked_loss: ChunkedLoss | None = None

    def __init__(self, config: Seq2SeqConfig | dict[str, Any], *graph: Any, **kwargs: Any) -> None:
        if graph:
            self._init_clone(config, *graph, **kwargs)
            return
        if isinstance(config, dict):
            config = Seq2SeqConfig.from_dict(config)
        if not isinstance(config, Seq2SeqConfig):
            raise ArgumentError(
                "A model is made from its shape.", "a Seq2SeqConfig, or its dict", value=config
            )
        dtype = kwargs.pop("dtype", None)

        encoder = TransformerEncoder(
            config.num_encoder_layers,
            **vars(config.for_side("encoder")),
            num_other_layers=config.num_decoder_layers,
            pruned_sublayers=within(config.pruned_sublayers, "encoder"),
            gradient_checkpointing=config.gradient_checkpointing,
            dtype=dtype,
            name="encoder",
        )
        decoder = TransformerDecoder(
            config.num_decoder_layers,
            **vars(config.for_side("decoder")),
            num_other_layers=config.num_encoder_layers,
            pruned_sublayers=within(config.pruned_sublayers, "decoder"),
            gradient_checkpointing=config.gradient_checkpointing,
            dtype=dtype,
            name="decoder",
        )
        encoder_embedding, decoder_embedding = _embeddings(config, dtype)
        vocabulary_projection = None
        if not config.tie_embeddings:
            vocabulary_projection = Projection(
                config.target_vocabulary_size,
                use_bias=config.has_logits_bias,
                takes_16_bits=True,
                dtype="float32",
                name="vocabulary_projection",
            )

        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        memory = encoder(encoder_embedding(source))
        hidden = decoder(decoder_embedding(target), memory)
        if vocabulary_projection is None:
            logits = decoder_embedding(hidden, reverse=True)
        else:
            logits = vocabulary_projection(hidden)
        super().__init__({"source": source, "target": target}, logits, **kwargs)

        self.config = config
        self.encoder = encoder
        self.decoder = decoder
        self.encoder_embedding = encoder_embedding
        self.decoder_embedding = decoder_embedding
        self.vocabulary_projection = vocabulary_projection

    @property
    def vocabulary_chunk_size(self) -> int:
        """How many entries of the vocabulary a compiled loss reads at a time; 0 for all."""
        return 0 if self._chunked_loss is None else self._chunked_loss.chunk_size

    def _init_clone(self, inputs: Any, outputs: Any, **kwargs: Any) -> None:
        """Make the model that consists of the layers which `clone_model` has cloned.

        A constructor that takes positional arguments and others, as `Functional` does, is called
        with the graph of the clones. Any other class would come out as a `Functional`.
        """
        original, clone_of = getattr(outputs, _CLONES, (None, {}))
        if original is None:
            raise ArgumentTypeError(
                "A Seq2SeqTransformer is made from a Seq2SeqConfig.",
                "one, or its dict",
                received=f"the inputs and outputs of a graph: {inputs}, {outputs}",
            )
        super().__init__(inputs, outputs, **kwargs)
        delattr(outputs, _CLONES)  # Or the clone would keep the original alive.
        self.config = original.config
        for name in _PARTS:
            part = getattr(original, name)
            setattr(self, name, None if part is None else clone_of[part])
        if isinstance(self.encoder_embedding, SharedTableEmbedding):
            self.encoder_embedding.read_table_of(self.decoder_embedding)

    def _run_through_graph(self, inputs: Any, operation_fn: Any = None, call_fn: Any = None) -> Any:
        """Run the graph; of a graph of clones, remember of which layers they are."""
        clone_of: dict[Any, Any] = {}

        def with_note(layer: Any) -> Any:
            clone_of[layer] = layer if operation_fn is None else operation_fn(layer)
            return clone_of[layer]

        outputs = super()._run_through_graph(inputs, with_note, call_fn)
        if isinstance(outputs, keras.KerasTensor):
            setattr(outputs, _CLONES, (self, clone_of))
        return outputs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute logits; ids whose values are there, in arrays and eager tensors, are checked."""
        if args:
            args = (self._checked(args[0]), *args[1:])
        elif "inputs" in kwargs:
            kwargs["inputs"] = self._checked(kwargs["inputs"])
        return super().__call__(*args, **kwargs)

    def _checked(self, inputs: Any) -> Any:
        check_names(inputs)
        check_inputs(inputs, self.config)
        return narrowed(inputs)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Compute logits; while training with guided alignment, add its loss.

        Args:
            inputs: `"source"`, `"target"`, and `"alignment"` `(B, T, S)` if there is one, which
                matters for guided alignment alone. With `"labels"` `(B, T)`, as a step with a
                large vocabulary adds them, the logits are not made whole.
            training: Whether to apply dropout.
            mask: Masks of the inputs, as Keras passes them.

        Returns:
            Logits `(B, T, V)`; with labels, `LabelLogits`.
        """
        if not isinstance(inputs, Mapping) or not {"alignment", LABELS} & inputs.keys():
            return super().call(inputs, training=training, mask=mask)
        inputs = dict(inputs)
        alignment, labels = inputs.pop("alignment", None), inputs.pop(LABELS, None)
        is_guided = training and self.guided_alignment is not None and alignment is not None
        if labels is None and not is_guided:
            return super().call(inputs, training=training)
        memory = self.encoder(
            self.encoder_embedding(inputs["source"], training=training), training=training
        )
        outputs = self.decoder(
            self.decoder_embedding(inputs["target"], training=training),
            memory,
            return_attention_scores=is_guided,
            training=training,
        )
        hidden, *scores = outputs if is_guided else (outputs,)
        if is_guided:
            loss = self.guided_alignment(alignment, scores[0][-1]["cross_attention"])
            # A functional model takes no losses itself.
            self.decoder.add_loss(keras.ops.cast(loss, keras.backend.floatx()))
        if labels is None or self._chunked_loss is None:
            return self._logits(hidden)
        head = self.vocabulary_projection or self.decoder_embedding
        return head.label_logits(hidden, labels, self._chunked_loss.chunk_size)

    @functools.wraps(keras.Model.train_step)
    def train_step(self, *args: Any) -> Any:
        """Train on a batch, as Keras does; a large vocabulary is read in chunks."""
        return super().train_step(*self._with_labels(args))

    @functools.wraps(keras.Model.test_step)
    def test_step(self, *args: Any) -> Any:
        """Evaluate a batch, as Keras does; a large vocabulary is read in chunks."""
        return super().test_step(*self._with_labels(args))

    def _with_labels(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a step's arguments, the last of which is the batch (JAX has a state before it)."""
        if self._chunked_loss is None:
            return args
        return (*args[:-1], self._chunked_loss.with_labels(args[-1]))

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Compute the loss as Keras does, and while training that of a distillation.

        Args:
            x: The inputs.
            y: Labels.
            y_pred: Logits, or `LabelLogits`.
            sample_weight: Weights of rows or tokens.
            training: Whether the model is trained.

        Returns:
            A scalar.
        """
        if isinstance(y_pred, LabelLogits) and self._chunked_loss is not None:
            added = [keras.ops.sum(one) for one in self.losses]
            return sum(added, self._chunked_loss.loss(y, y_pred, sample_weight))
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        if training and self.distillation is not None:
            taught = self.distillation(x, y, y_pred, sample_weight)
            loss = loss + keras.ops.cast(taught, loss.dtype)
        return loss

    @functools.wraps(keras.Model.compute_metrics)
    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Count a batch, as Keras does, also where its logits are not whole."""
        if not isinstance(y_pred, LabelLogits) or self._chunked_loss is None:
            return super().compute_metrics(x, y, y_pred, sample_weight)
        if self._compile_metrics is not None and not self._compile_metrics.built:
            shape = (*y.shape, self.config.target_vocabulary_size)
            self._compile_metrics.build(y, keras.KerasTensor(shape))
        self._chunked_loss.update_metrics(y, y_pred, sample_weight)
        return self.get_metrics_result()

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        *args: Any,
        guided_alignment: Any = None,
        distillation: Any = None,
        vocabulary_chunk_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Compile, as `keras.Model.compile` does; a loss of probabilities is refused.

        Args:
            optimizer: As Keras takes it.
            loss: As Keras takes it. The model gives logits: a loss of Keras needs
                `from_logits=True`.
            *args: The other arguments of Keras.
            guided_alignment: A `keras_addnorm.training.GuidedAlignment`, or `None`. Inputs then
                need an `"alignment"`. A saved model does not keep it.
            distillation: A `keras_addnorm.training.TokenDistillation`, or `None`. A saved model
                does not keep it.
            vocabulary_chunk_size: How many entries of the vocabulary loss and metrics read at a
                time: less memory, and one more product with the vocabulary. `None` for 8,192 of a
                vocabulary of more than 65,536, and for all of a smaller one; 0 for all. Whatever
                needs whole logits keeps them, with a warning where chunks were meant.
            **kwargs: The same by name.

        Raises:
            ValueError: If an argument is none of these, a loss takes probabilities, the attention
                to be guided is pruned, the vocabularies of a teacher are others, or
                `vocabulary_chunk_size` is given beside something that needs whole logits.
        """
        optimizer = get_optimizer(optimizer)
        require_loss_of_logits(loss)
        if guided_alignment is not None:
            require_additional_loss(guided_alignment=guided_alignment)
            require_cross_attention(self.config)
        if distillation is not None:
            require_additional_loss("teacher", distillation=distillation)
            require_same_vocabularies(self.config, distillation.teacher)
        self.guided_alignment, self.distillation = guided_alignment, distillation
        super().compile(optimizer, loss, *args, **kwargs)
        compiled = inspect.signature(keras.Model.compile).bind(
            self, optimizer, loss, *args, **kwargs
        )
        self._chunked_loss = ChunkedLoss.chosen(self, vocabulary_chunk_size, compiled.arguments)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile as a saved model was, which Keras leaves to classes with a `compile`.

        Args:
            config: What `get_compile_config` returned.
        """
        compiled = keras.saving.deserialize_keras_object(config)
        super().compile(**compiled)
        self._chunked_loss = ChunkedLoss.chosen(self, None, compiled)
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    @functools.wraps(keras.Model.fit)
    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train, as `keras.Model.fit` does, on ids that are checked first."""
        self._check_data(x, y)
        validation = kwargs.get("validation_data")
        self._check_data(
            *(validation[:2] if isinstance(validation, tuple | list) else (validation,))
        )
        return super().fit(x, y, *args, **kwargs)

    @functools.wraps(keras.Model.evaluate)
    def evaluate(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluate, as `keras.Model.evaluate` does, on ids that are checked first."""
        self._check_data(x, y)
        return super().evaluate(x, y, *args, **kwargs)

    @functools.wraps(keras.Model.predict)
    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Predict, as `keras.Model.predict` does, from ids that are checked first."""
        self._check_data(x)
        return super().predict(x, *args, **kwargs)

    @functools.wraps(keras.Model.train_on_batch)
    def train_on_batch(self, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train on one batch, as `keras.Model.train_on_batch` does, after a check of its ids."""
        self._check_data(x, y)
        return super().train_on_batch(x, y, *args, **kwargs)

    @functools.wraps(keras.Model.test_on_batch)
    def test_on_batch(self, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluate one batch, as `keras.Model.test_on_batch` does, after a check of its ids."""
        self._check_data(x, y)
        return super().test_on_batch(x, y, *args, **kwargs)

    @functools.wraps(keras.Model.predict_on_batch)
    def predict_on_batch(self, x: Any) -> Any:
        """Predict one batch, as `keras.Model.predict_on_batch` does, after a check of its ids."""
        self._check_data(x)
        return super().predict_on_batch(x)

    def _check_data(self, x: Any, y: Any = None) -> None:
        check_data(x, y, self.config, getattr(self, "loss", None))

    def encode(self, source_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Run the encoder: ids `(B, S)` -> the memory `(B, S, D)` and its padding mask `(B, S)`."""
        check_inputs({"source": source_ids}, self.config)
        mask = keras.ops.not_equal(source_ids, self.config.pad_id)
        return self.encoder(self.encoder_embedding(source_ids), padding_mask=mask), mask

    def initial_cache(
        self, memory: Tensor, batch_size: int | Tensor, max_length: int
    ) -> list[dict[str, Tensor]]:
        """Return the decoder's caches before the first step.

        Args:
            memory: The encoder's output, `(B, S, D)`.
            batch_size: Number of rows to decode, a multiple of B.
            max_length: Number of positions to decode at most.

        Returns:
            One dict a layer.
        """
        return self.decoder.initial_cache(batch_size, max_length, memory)

    def decode_step(
        self,
        token_ids: Tensor,
        cache: list[dict[str, Tensor]],
        index: int | Tensor,
        memory_padding_mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        """Decode one position.

        Args:
            token_ids: The tokens at position `index`, `(N,)`.
            cache: From `initial_cache` or the step before.
            index: The position, from 0.
            memory_padding_mask: `(B, S)`, from `encode`; N is a multiple of B, and the rows of one
                source stand side by side.
            return_attention_scores: Whether to return the attention weights too.

        Returns:
            Logits for the next token, `(N, V)`, and the updated cache; with
            `return_attention_scores`, last, a list of dicts, one a layer: `"self_attention"`
            `(N, H, 1, max_length)`, of no heads for another kind of self-attention, and
            `"cross_attention"` `(N, H, 1, S)`.
        """
        x, *scores, cache = self.decoder(
            self.decoder_embedding(keras.ops.expand_dims(token_ids, 1), start_index=index),
            memory_padding_mask=memory_padding_mask,
            cache=cache,
            cache_update_index=index,
            return_attention_scores=return_attention_scores,
        )
        # (N, 1, D) -> (N, D) -> (N, V)
        x = keras.ops.reshape(x, (-1, x.shape[-1]))
        if self.vocabulary_projection is None:
            return (self.decoder_embedding.logits(x), cache, *scores)
        return (self.vocabulary_projection(x), cache, *scores)

    def decode_sequence(
        self,
        target_ids: Tensor,
        memory: Tensor,
        memory_padding_mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        """Decode all positions of given targets at once.

        Args:
            target_ids: `(B, T)`, beginning with the start token.
            memory: The encoder's output, `(B, S, D)`.
            memory_padding_mask: `(B, S)`, from `encode`.
            return_attention_scores: Whether to return the attention weights too.

        Returns:
            A tuple of the logits `(B, T, V)` and, with `return_attention_scores`, a list of
            dicts, one a layer: `"self_attention"` `(B, H, T, T)` and `"cross_attention"`
            `(B, H, T, S)`.
        """
        outputs = self.decoder(
            self.decoder_embedding(target_ids),
            memory,
            memory_padding_mask=memory_padding_mask,
            return_attention_scores=return_attention_scores,
        )
        x, *scores = outputs if return_attention_scores else (outputs,)
        return (self._logits(x), *scores)

    def _logits(self, x: Tensor) -> Tensor:
        if self.vocabulary_projection is None:
            return self.decoder_embedding(x, reverse=True)
        return self.vocabulary_projection(x)

    @takes_search("splitting")
    def generate(
        self,
        source_ids: Any,
        *,
        search: decoding.Search,
        return_details: bool | decoding.Details = False,
        jit_compile: bool = True,
    ) -> Any:
        """Translate token ids.

        The batch is padded to a power of two and the source to a multiple of 16, so that few
        shapes are compiled; neither changes the result.

        Args:
            source_ids: Integers, `(B, S)`, each row ended with `end_id` and padded with `pad_id`
                behind that. A row of padding only gives a row of padding and the score 0.
            search: How to search: a `keras_addnorm.decoding.Search`; or its fields, a strategy
                (`"greedy"`, `Beam(4)`, ...) and keywords: `num_beams`, `length_penalty`,
                `max_length`, `constraints`, `target_prefix`, `shortlist`.
            return_details: Whether to return a `keras_addnorm.decoding.Generation`, with
                log-probabilities and alignments of each token; a `decoding.Details` says more.
            jit_compile: Whether to compile with XLA (TensorFlow; JAX always compiles).

        Returns:
            Token ids `(B, max_length)` without the start token, padded after the end token, and
            scores `(B,)`: the sum of log-probabilities divided by the length penalty. A strategy
            that returns N > 1 hypotheses gives `(B, N, max_length)` and `(B, N)`, best first.
            Where nothing was found, the row is padding and the score minus infinity. With
            `return_details`, a `Generation`, always with an axis N.

        Raises:
            ValueError: If the ids have the wrong rank, dtype or range, padding before or between
                tokens, or more positions than the model, or if an option does not fit.
            FloatingPointError: If logits are not finite; names the step.
        """
        info = DecoderInfo.of(self)
        return generate_with(self, source_ids, search, return_details, jit_compile, info)

    def score(
        self,
        source_ids: Any,
        target_ids: Any,
        *,
        num_free_tokens: int = 0,
        jit_compile: bool = True,
    ) -> decoding.Scores:
        """Return the log-probability of given outputs, token by token and in all.

        An output that `generate` found gets the sum of log-probabilities that it had there.

        Args:
            source_ids: Integers, `(B, S)`, as for `generate`.
            target_ids: Integers, `(B, T)`, as `generate` returns them: without the start token,
                padded after the end token. `(B, N, T)` for N outputs of each source. Padding
                counts nothing; an output without its end token is scored as it is.
            num_free_tokens: Number of tokens at the beginning of each output whose log-probability
                counts as 0, as that of a free `decoding.Prefix`.
            jit_compile: Whether to compile with XLA (TensorFlow; JAX always compiles).

        Returns:
            A `keras_addnorm.decoding.Scores`: `token_log_probabilities` of the shape of the
            targets, and their sums, `log_probabilities`, `(B,)` or `(B, N)`.

        Raises:
            ValueError: If the ids have the wrong shape, dtype or range, padding before or between
                tokens, or more positions than the model.
            FloatingPointError: If logits are not finite.
        """
        return decoding.score(
            self,
            source_ids,
            target_ids,
            num_free_tokens=num_free_tokens,
            jit_compile=jit_compile,
        )

    def make_train_function(self, force: bool = False) -> Any:
        """Make the function that trains on a batch, as Keras does, and the optimiser's variables.

        Keras on TensorFlow would create the variables inside the function: a condition and two more
        operations for each in the graph, and the whole step traced twice.
        """
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def quantize(
        self, mode: str | None = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """Quantise projections and embeddings, as `keras.Model.quantize` does.

        Kernels and tables become whole numbers with one factor for each output; what they are
        multiplied with is rounded, too. Norms, biases, gains and positions stay as they are. The
        model needs no call before. It generates, scores, saves and loads, and LoRA can tune it.
        Fold, prune and export before: `export_saved_model` has `storage="int8"`.

        GPTQ and AWQ quantise the kernels of the stacks only, with calibration pairs as
        `get_quantization_layer_structure` reads them.

        Args:
            mode: `"int8"` or `"int4"`; `None` with a `config` that has one.
            config: A `keras.quantizers.QuantizationConfig`, also `GPTQConfig` and `AWQConfig`, or
                `None`.
            filters: Which layers to quantise: a regular expression of their names, a list of
                them, a function of a layer, or `None` for all.
            **kwargs: `type_check`, as Keras takes it.

        Raises:
            ValueError: If the mode is unknown, the model computes in float16 alone, a layer is
                quantised already, a weight is NaN or infinite, or GPTQ or AWQ could not store a
                kernel.

        Example:
        ```python
        from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

        model = Seq2SeqTransformer(Seq2SeqConfig.preset("micro", max_length=8))
        model.quantize("int8")
        ids, scores = model.generate([[5, 6, 7, 2]])
        ```
        """
        require_finite(self)
        is_chosen = chosen_layers("quantize", filters)
        if (mode or getattr(config, "mode", None)) in CALIBRATED:
            layers = [*self.encoder._flatten_layers(), *self.decoder._flatten_layers()]
            kernels = {one for one in layers if isinstance(one, Projection) and is_chosen(one)}
            require_storable(kernels, config)
            super().quantize(mode, config=config, filters=kernels.__contains__, **kwargs)
            return
        with old_objects_exempt():  # Keras collects garbage for each weight, a minute in all.
            super().quantize(mode, config=config, filters=is_chosen, **kwargs)
            # Keras leaves out layers that hold others.
            for embedding in {self.encoder_embedding, self.decoder_embedding}:
                if is_chosen(embedding):
                    try:
                        embedding.quantize(mode, config=config, **kwargs)
                    except NotImplementedError as error:  # Of float8, for instance.
                        said = f"{embedding.name!r} stays as it is: {error}"
                        warnings.warn(said, stacklevel=2)

    def get_quantization_layer_structure(self, mode: str | None = None) -> dict[str, Any] | None:
        """Return what Keras runs for GPTQ and AWQ: the encoder, then the decoder.

        The `dataset` of a `GPTQConfig` or `AWQConfig` is a list of arrays, one a pair, with the ids
        of source, end, start, target and end. What Keras cuts out of it is fed pair by pair,
        without padding.

        Args:
            mode: `"gptq"` or `"awq"`; the others need no structure.

        Returns:
            The structure, or `None`.

        Raises:
            ValueError: If targets of the model begin with the token at which texts end.
        """
        return quantization_structure(self) if mode in CALIBRATED else None

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, and which layers are quantised, if any are."""
        # A functional model has no dtype of its own: its layers have.
        dtype = keras.dtype_policies.serialize(self.decoder.dtype_policy)
        config = {"config": self.config.to_dict(), "name": self.name, "dtype": dtype}
        quantized = quantized_policies(self)
        return {**config, "quantized": quantized} if quantized else config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Seq2SeqTransformer:
        """Return the model that `get_config` described, with new weights."""
        arguments = dict(config)
        quantized = arguments.pop("quantized", {})
        model = cls(**arguments)
        quantize_layers(model, quantized)
        return model


def _embeddings(
    config: Seq2SeqConfig, dtype: Any
) -> tuple[PositionalEmbedding | SharedTableEmbedding, PositionalEmbedding]:
    """Return the embeddings of source and target."""
    source, target = _side_arguments(config, "encoder"), _side_arguments(config, "decoder")
    table = {"hidden_dim": config.hidden_dim, "dtype": dtype}
    vocabulary_size, use_bias = (
        config.target_vocabulary_size,
        config.has_logits_bias and config.tie_embeddings,
    )
    if not config.share_embeddings:
        return (
            PositionalEmbedding(
                config.source_vocabulary_size,
                **table,
                **source,
                init_gain=_init_gain(config, "encoder"),
                name="encoder_embedding",
            ),
            PositionalEmbedding(
                vocabulary_size,
                **table,
                **target,
                use_logits_bias=use_bias,
                init_gain=_init_gain(config, "decoder"),
                name="decoder_embedding",
            ),
        )
    shared = PositionalEmbedding(
        vocabulary_size,
        **table,
        **target,
        use_logits_bias=use_bias,
        init_gain=_init_gain(config, "encoder"),
        name="embedding",
    )
    has_weights = position_kinds.is_learned(config.positions) or config.embedding_norm is not None
    if source == target and not has_weights:
        return shared, shared
    return SharedTableEmbedding(shared, **source, dtype=dtype, name="encoder_embedding"), shared


def _init_gain(config: Seq2SeqConfig, side: norms.Side) -> float:
    """Return the factor that the scheme wants on the initial table of a side."""
    depths = config.num_encoder_layers, config.num_decoder_layers
    return schemes.get(config.scheme).embedding_gain(schemes.StackPosition(*depths, side))


def _side_arguments(config: Seq2SeqConfig, side: Literal["encoder", "decoder"]) -> dict[str, Any]:
    norm = config.embedding_norm
    has_zeros = side == "decoder" and config.start_embedding == "zeros"
    return {
        "max_length": config.max_length,
        "positions": config.positions,
        "pad_id": config.pad_id,
        "dropout": config.dropout,
        # A target begins with the start token, whatever its id.
        "is_first_real": side == "decoder" and config.start_id == config.pad_id,
        "scale": config.embedding_scale,
        "norm": None if norm is None else norms.for_side(norm, side),
        "epsilon": config.epsilon,
        "zero_id": config.start_id if has_zeros else None,
    }


def require_model(model: Any) -> Seq2SeqTransformer:
    """Return the model, or raise a `TypeError` if it is no `Seq2SeqTransformer`."""
    if not isinstance(model, Seq2SeqTransformer):
        raise ArgumentTypeError(
            "This needs a model that can be described by a Seq2SeqConfig.",
            "a Seq2SeqTransformer",
            "In a model of your own, LoRA is merged by model.save(path) and "
            "keras.models.load_model(path).",
            received=f"a {type(model).__name__}",
        )
    return model
