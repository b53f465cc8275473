"""Guided alignment and token-level distillation against NumPy, and in a training."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import (
    Adam,
    GuidedAlignment,
    MaskedSparseCategoricalCrossentropy,
    TokenDistillation,
)

LABELS = np.array([[3, 5, 2, 0, 0], [4, 2, 0, 0, 0], [0, 0, 0, 0, 0]])


def softmax(z):
    exponentials = np.exp(z - z.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def divergence(teacher, student, tau):
    q, p = softmax(teacher / tau), softmax(student / tau)
    return tau**2 * (q * np.log(q / p)).sum(-1)


def logits(seed, vocabulary_size=7):
    return np.random.default_rng(seed).normal(size=(*LABELS.shape, vocabulary_size)) * 2


@pytest.mark.parametrize("tau", [1.0, 2.5])
def test_distillation_is_the_mean_divergence_of_real_tokens(tau):
    teacher, student = logits(0), logits(1)
    teacher[1, 3], student[0, 4] = np.nan, np.inf  # On padding they count nothing.
    loss = TokenDistillation(lambda inputs, training: ops.convert_to_tensor(inputs), 0.3, tau)
    real = LABELS > 0
    expected = 0.3 * divergence(teacher[real], student[real], tau).mean()
    np.testing.assert_allclose(float(loss(teacher, LABELS, student)), expected, rtol=1e-5)


@pytest.mark.parametrize("weighted_sum", [False, True])
def test_sample_weights_count(weighted_sum):
    teacher, student = logits(0), logits(1)
    weights = np.array([[0.5], [2.0], [3.0]])
    loss = TokenDistillation(lambda x, training: x, weighted_sum=weighted_sum)
    each = np.where(LABELS > 0, weights, 0.0)
    expected = (each * divergence(teacher, student, 1.0)).sum()
    expected /= 1.0 if weighted_sum else each.sum()
    found = loss(teacher, LABELS, student, weights)
    np.testing.assert_allclose(float(found), expected, rtol=1e-5)


def test_distillation_of_an_equal_teacher_is_zero():
    loss = TokenDistillation(lambda x, training: x + 3.0)  # The same distribution.
    assert abs(float(loss(logits(0), LABELS, logits(0)))) < 1e-6


def test_a_teacher_of_another_vocabulary_is_refused():
    loss = TokenDistillation(lambda inputs, training: logits(0, 11))
    with pytest.raises(ValueError, match=r"Expected 7 target tokens.*a teacher of 11"):
        loss({}, LABELS, logits(0))


def test_guided_alignment_is_the_cross_entropy_of_links():
    rng = np.random.default_rng(0)
    attention = softmax(rng.normal(size=(2, 3, 5, 7))).astype("float32")
    alignment = (rng.random((2, 5, 7)) < 0.2) * rng.random((2, 5, 7))
    p = attention.mean(1)
    expected = -0.1 * (alignment * np.log(p + 1e-6)).sum()
    np.testing.assert_allclose(float(GuidedAlignment()(alignment, attention)), expected, rtol=1e-5)


def test_nowhere_to_look_is_no_infinite_loss():
    loss = GuidedAlignment(1.0)(np.ones((1, 1, 1)), np.zeros((1, 2, 1, 1), "float32"))
    np.testing.assert_allclose(float(loss), -np.log(1e-6), rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GuidedAlignment(0.0), "above 0"),
        (lambda: GuidedAlignment(float("nan")), "above 0"),
        (lambda: TokenDistillation(print, weight=-1.0), "`?weight`? of a distillation"),
        (lambda: TokenDistillation(print, temperature=0.0), "`?temperature`? of a distillation"),
        (lambda: TokenDistillation(print, pad_id=0.5), "integer label"),
    ],
)
def test_what_is_no_weight_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def config(**fields):
    sizes = {"source_vocabulary_size": 13, "target_vocabulary_size": 11, "num_encoder_layers": 1}
    return Seq2SeqConfig.preset("micro", **{**sizes, "dropout": 0.0, "max_length": 8, **fields})


INPUTS = {
    "source": np.array([[5, 6, 7, 2], [8, 2, 0, 0]]),
    "target": np.array([[1, 3, 4], [1, 9, 0]]),
    "alignment": np.random.default_rng(0).random((2, 3, 4)).astype("float32"),
}
TARGETS = np.array([[3, 4, 2], [9, 2, 0]])


@pytest.fixture(scope="module")
def model():
    return Seq2SeqTransformer(config())


@pytest.fixture(scope="module")
def teacher():
    return Seq2SeqTransformer(config(num_decoder_layers=1))


def compiled(model, **choices):
    loss = MaskedSparseCategoricalCrossentropy()
    model.compile(keras.optimizers.SGD(0.0), loss, jit_compile=False, **choices)
    return model


@pytest.mark.parametrize("row_weights", [None, np.array([[0.5], [2.0]])])
def test_a_training_adds_both_to_the_loss_of_labels(model, teacher, row_weights):
    # Of the last layer; the loss itself says what its mean over the heads is.
    x = {name: INPUTS[name] for name in ("source", "target")}
    memory, mask = model.encode(x["source"])
    _, scores = model.decode_sequence(x["target"], memory, mask, return_attention_scores=True)
    attention = ops.convert_to_numpy(scores[-1]["cross_attention"]).mean(1)
    guided = -0.7 * (INPUTS["alignment"] * np.log(attention + 1e-6)).sum()
    taught, own = (np.asarray(ops.convert_to_numpy(one(x))) for one in (teacher, model))
    each = np.where(TARGETS > 0, 1.0 if row_weights is None else row_weights, 0.0)
    distilled = 0.3 * (each * divergence(taught, own, 2.0)).sum() / each.sum()
    plain = float(MaskedSparseCategoricalCrossentropy()(TARGETS, own, row_weights))

    both = {
        "guided_alignment": GuidedAlignment(0.7),
        "distillation": TokenDistillation(teacher, 0.3, 2.0),
    }
    found = compiled(model, **both).train_on_batch(INPUTS, TARGETS, sample_weight=row_weights)
    np.testing.assert_allclose(found, plain + guided + distilled, rtol=1e-5)
    # Neither counts while validating, and without them nothing is left of them.
    again = model.test_on_batch(INPUTS, TARGETS, sample_weight=row_weights)
    np.testing.assert_allclose(again, plain, rtol=1e-5)
    found = compiled(model).train_on_batch(INPUTS, TARGETS, sample_weight=row_weights)
    np.testing.assert_allclose(found, plain, rtol=1e-5)


def test_logits_are_the_same_with_an_alignment(model):
    without = {name: INPUTS[name] for name in ("source", "target")}
    expected = ops.convert_to_numpy(model(without))
    compiled(model, guided_alignment=GuidedAlignment())
    for training in (False, True):
        found = ops.convert_to_numpy(model(INPUTS, training=training))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_teacher_is_no_part_of_the_student(model, teacher):
    names = [weight.path for weight in model.weights]
    before = [ops.convert_to_numpy(weight) for weight in teacher.weights]
    loss = MaskedSparseCategoricalCrossentropy()
    model.compile(Adam(0.1), loss, distillation=TokenDistillation(teacher), jit_compile=False)
    model.train_on_batch(INPUTS, TARGETS)
    assert [weight.path for weight in model.weights] == names
    for weight, value in zip(teacher.weights, before, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(weight), value)


def test_a_model_that_cannot_be_guided_or_taught_is_refused(teacher):
    pruned = Seq2SeqTransformer(config(pruned_sublayers=("decoder/1/cross_attention",)))
    with pytest.raises(ValueError, match="cross-attention of the last decoder layer"):
        compiled(pruned, guided_alignment=GuidedAlignment())
    other = Seq2SeqTransformer(config(source_vocabulary_size=17))
    with pytest.raises(ValueError, match="source_vocabulary_size 17"):
        compiled(other, distillation=TokenDistillation(teacher))


@pytest.mark.slow
def test_attention_learns_where_to_look():
    student = Seq2SeqTransformer(config(self_attention="ssru", gradient_checkpointing=True))
    loss = MaskedSparseCategoricalCrossentropy()
    student.compile(Adam(0.01), loss, guided_alignment=GuidedAlignment(1.0), jit_compile=True)
    links = np.zeros((2, 3, 4), "float32")
    for row, t, s in [(0, 0, 2), (0, 1, 1), (0, 2, 3), (1, 0, 0), (1, 1, 1)]:
        links[row, t, s] = 1 / 5
    for _ in range(60):
        student.train_on_batch({**INPUTS, "alignment": links}, TARGETS)
    memory, mask = student.encode(INPUTS["source"])
    _, scores = student.decode_sequence(
        INPUTS["target"], memory, mask, return_attention_scores=True
    )
    found = ops.convert_to_numpy(scores[-1]["cross_attention"]).mean(1)
    # The mean over heads, of which one may have settled elsewhere; of four tokens each has 1/4.
    assert (found[links > 0] > 0.7).all()
