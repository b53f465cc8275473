"""Diagnostics of models: reports, residual monitor, stability forecasts, the cost of pruning."""

from keras_addnorm.diagnostics.admin import initialize_admin
from keras_addnorm.diagnostics.attention_maps import (
    AttentionMaps,
    attention_maps,
    plot_attention,
)
from keras_addnorm.diagnostics.effective_depth import EffectiveDepth, effective_depth
from keras_addnorm.diagnostics.gradients import LossGradients, loss_gradients
from keras_addnorm.diagnostics.head_diversity import HeadDifferences, head_diversity
from keras_addnorm.diagnostics.inspect_model import Sentence, inspect
from keras_addnorm.diagnostics.observe import Observation, SublayerRecord, observe
from keras_addnorm.diagnostics.prune import PruneCost, PruneResult, Validation, prune
from keras_addnorm.diagnostics.report import Report
from keras_addnorm.diagnostics.report_data import (
    StreamStatistics,
    SublayerReport,
    Thresholds,
    Verdict,
)
from keras_addnorm.diagnostics.residual_log import ResidualLog, ResidualRow, StreamLog, StreamRow
from keras_addnorm.diagnostics.residual_monitor import ResidualMonitor
from keras_addnorm.diagnostics.stability import (
    Stability,
    StabilityForecast,
    StabilityReason,
    StabilityThresholds,
    predict_stability,
)
from keras_addnorm.models import (  # re-exported: they were defined here
    fold,
    is_foldable,
)

__all__ = [
    "AttentionMaps",
    "EffectiveDepth",
    "HeadDifferences",
    "LossGradients",
    "Observation",
    "PruneCost",
    "PruneResult",
    "Report",
    "ResidualLog",
    "ResidualMonitor",
    "ResidualRow",
    "Sentence",
    "Stability",
    "StabilityForecast",
    "StabilityReason",
    "StabilityThresholds",
    "StreamLog",
    "StreamRow",
    "StreamStatistics",
    "SublayerRecord",
    "SublayerReport",
    "Thresholds",
    "Validation",
    "Verdict",
    "attention_maps",
    "effective_depth",
    "fold",
    "head_diversity",
    "initialize_admin",
    "inspect",
    "is_foldable",
    "loss_gradients",
    "observe",
    "plot_attention",
    "predict_stability",
    "prune",
]
