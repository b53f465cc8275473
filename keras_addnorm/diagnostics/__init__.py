"""Looking into a model from outside, without a line in any layer."""

from keras_addnorm.diagnostics.attention_maps import (
    AttentionMaps,
    attention_maps,
    plot_attention,
)
from keras_addnorm.diagnostics.fold import fold
from keras_addnorm.diagnostics.gradients import LossGradients, loss_gradients
from keras_addnorm.diagnostics.head_diversity import HeadDifferences, head_diversity
from keras_addnorm.diagnostics.monitor import ResidualMonitor
from keras_addnorm.diagnostics.observe import Observation, SublayerRecord, observe
from keras_addnorm.diagnostics.prune import PruneCost, PruneResult, Validation, prune
from keras_addnorm.diagnostics.residual_log import ResidualLog, ResidualRow
from keras_addnorm.diagnostics.stability import (
    Stability,
    StabilityForecast,
    StabilityReason,
    StabilityThresholds,
    predict_stability,
)

__all__ = [
    "AttentionMaps",
    "HeadDifferences",
    "LossGradients",
    "Observation",
    "PruneCost",
    "PruneResult",
    "ResidualLog",
    "ResidualMonitor",
    "ResidualRow",
    "Stability",
    "StabilityForecast",
    "StabilityReason",
    "StabilityThresholds",
    "SublayerRecord",
    "Validation",
    "attention_maps",
    "fold",
    "head_diversity",
    "loss_gradients",
    "observe",
    "plot_attention",
    "predict_stability",
    "prune",
]
