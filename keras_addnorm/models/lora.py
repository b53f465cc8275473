"""LoRA for whole models: `enable_lora` before a fine-tuning, `merge_lora` after it."""

from __future__ import annotations

from typing import Any

import keras

from keras_addnorm.basics.argument_checks import is_number, is_whole
from keras_addnorm.basics.errors import ArgumentError, ArgumentTypeError
from keras_addnorm.layers.adapted import chosen_layers, lora_layers, lora_variables
from keras_addnorm.models.rebuild import rebuild, require_floats
from keras_addnorm.models.seq2seq import Seq2SeqTransformer, require_model


def enable_lora(
    model: keras.Model, rank: int, lora_alpha: float | None = None, filters: Any = None
) -> None:
    """Switch LoRA on in the projections and embeddings of a model, and freeze all other weights.

    It calls `layer.enable_lora` of Keras, which puts two matrices beside a kernel or a table: the
    layer computes with `W + (lora_alpha / rank) A B`. `compile` and `fit` then train these matrices
    alone.

    Args:
        model: A `Seq2SeqTransformer`, or any built Keras model. It changes.
        rank: Width of the matrices.
        lora_alpha: What scales their product; `None` for `rank`.
        filters: Which layers to adapt: a regular expression of their names, such as
            `"query|value"`, a list of them, a function of a layer, or `None` for all.

    Raises:
        TypeError: If it is no Keras model.
        ValueError: If a number does not fit, no layer is chosen, or one has LoRA already.
            The model has not changed then.

    Example:
        >>> from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer, enable_lora
        >>> model = Seq2SeqTransformer(
        ...     Seq2SeqConfig.preset("tiny", source_vocabulary_size=11, target_vocabulary_size=11)
        ... )
        >>> enable_lora(model, rank=4, filters="query|value")
        >>> sum(weight.shape.num_elements() for weight in model.trainable_weights)
        24576

    Reference:
        Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021.
    """
    if not is_whole(rank, 1):
        raise ArgumentError("`rank` is the width of LoRA's matrices.", "an int >= 1", rank=rank)
    if lora_alpha is not None and not is_number(lora_alpha, above=0):
        raise ArgumentError(
            "`lora_alpha` scales what LoRA learns.",
            "a finite number > 0, or None for the rank",
            lora_alpha=lora_alpha,
        )
    if not isinstance(model, keras.Model):
        raise ArgumentTypeError(
            "LoRA is switched on in the layers of a model.", "a Keras model", value=model
        )
    chosen = list(filter(chosen_layers("enable_lora", filters), model._flatten_layers()))
    if not chosen:
        raise ArgumentError(
            "There is no layer to adapt.",
            "names of layers with an `enable_lora`, such as 'query_projection'",
            filters=filters,
        )
    if adapted := [layer.path or layer.name for layer in chosen if layer.lora_enabled]:
        raise ArgumentError(
            "A layer can have LoRA once.",
            "`filters` that choose other layers, or a model of `merge_lora`",
            received=f"layers with LoRA: {', '.join(adapted[:4])}",
        )
    # A product of wider matrices is no more than any other change of the kernel.
    sides = [sorted(weight.shape) for layer in chosen for weight in layer.weights]
    widest = max((side[-2] for side in sides if len(side) > 1), default=rank)
    if rank > widest:
        raise ArgumentError(
            "LoRA's matrices are narrower than what they change.",
            f"`rank` <= {widest}, the side of the largest kernel here",
            rank=rank,
        )
    for layer in chosen:
        layer.enable_lora(rank, lora_alpha)
    learned = {id(matrix) for layer in lora_layers(model) for matrix in lora_variables(layer)}
    for weight in model.weights:
        weight.trainable = id(weight) in learned


def merge_lora(model: Seq2SeqTransformer) -> Seq2SeqTransformer:
    """Return a model whose kernels and embeddings contain what LoRA has learned.

    `W + (alpha / rank) A B` takes the place of `W`: the same outputs, without the extra products.
    `fold`, `prune` and all exports do so by themselves.

    Args:
        model: The model, which does not change.

    Returns:
        A new model, not compiled; `model` itself if it has no LoRA.

    Raises:
        TypeError: If it is no `Seq2SeqTransformer`.
        ValueError: If it is quantised.

    Example:
        >>> from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer, merge_lora
        >>> model = Seq2SeqTransformer(
        ...     Seq2SeqConfig.preset("tiny", source_vocabulary_size=11, target_vocabulary_size=11)
        ... )
        >>> model.decoder_embedding.enable_lora(4)
        >>> len(model.weights) - len(merge_lora(model).weights)
        2

    Reference:
        Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1.
    """
    require_floats(require_model(model))
    return rebuild(model) if lora_layers(model) else model
