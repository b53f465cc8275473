"""Everything between a model and `model.fit`, on any Keras backend.

Losses and metrics over the tokens that are not padding; learning-rate schedules with a warm-up;
callbacks that score translations, write checkpoints to resume from or to average, and stop at NaN;
`plot_curves` draws the log.

Example:
    >>> import keras, numpy as np
    >>> from keras_addnorm.training import (
    ...     InverseSquareRootSchedule, MaskedAccuracy, MaskedSparseCategoricalCrossentropy
    ... )
    >>> ids = np.array([[4, 5, 2, 0], [6, 2, 0, 0]])
    >>> model = keras.Sequential([keras.layers.Embedding(7, 8), keras.layers.Dense(7)])
    >>> model.compile(
    ...     optimizer=keras.optimizers.Adam(InverseSquareRootSchedule(0.01, warmup_steps=10)),
    ...     loss=MaskedSparseCategoricalCrossentropy(label_smoothing=0.1),
    ...     metrics=[MaskedAccuracy()],
    ... )
    >>> sorted(model.fit(ids, ids, verbose=0).history)
    ['accuracy', 'loss']
"""

from keras_addnorm.training.bleu_tokenizers import bleu_tokenizer
from keras_addnorm.training.checkpoints import (
    LastCheckpoints,
    average_checkpoints,
    average_weights,
)
from keras_addnorm.training.curves import plot_curves
from keras_addnorm.training.eight_bits import EightBitAdam, on_eight_bit_grid
from keras_addnorm.training.guard import NonFiniteError, NonFiniteGuard
from keras_addnorm.training.learning_rate_finder import LearningRateCurve, find_learning_rate
from keras_addnorm.training.losses import MaskedSparseCategoricalCrossentropy, RDropCrossentropy
from keras_addnorm.training.metrics import MaskedAccuracy, Perplexity
from keras_addnorm.training.minimum_risk import MinimumRisk
from keras_addnorm.training.optimizers import Adam
from keras_addnorm.training.resume import Checkpoints, TrainingPosition
from keras_addnorm.training.schedules import (
    Cooldown,
    InverseSquareRootSchedule,
    NoamSchedule,
    ScheduleOfUpdates,
)
from keras_addnorm.training.scores import Scores, evaluate_translations, sentence_scorer
from keras_addnorm.training.significance import Comparison, TestedScore, compare_translations
from keras_addnorm.training.stopping import Stopped, StopRequest
from keras_addnorm.training.student_losses import GuidedAlignment, TokenDistillation
from keras_addnorm.training.translation_score import TranslationScore

__all__ = [
    "Adam",
    "Checkpoints",
    "Comparison",
    "Cooldown",
    "EightBitAdam",
    "GuidedAlignment",
    "InverseSquareRootSchedule",
    "LastCheckpoints",
    "LearningRateCurve",
    "MaskedAccuracy",
    "MaskedSparseCategoricalCrossentropy",
    "MinimumRisk",
    "NoamSchedule",
    "NonFiniteError",
    "NonFiniteGuard",
    "Perplexity",
    "RDropCrossentropy",
    "ScheduleOfUpdates",
    "Scores",
    "StopRequest",
    "Stopped",
    "TestedScore",
    "TokenDistillation",
    "TrainingPosition",
    "TranslationScore",
    "average_checkpoints",
    "average_weights",
    "bleu_tokenizer",
    "compare_translations",
    "evaluate_translations",
    "find_learning_rate",
    "on_eight_bit_grid",
    "plot_curves",
    "sentence_scorer",
]
