"""Looking into a model from outside, without a line in any layer."""

from keras_addnorm.diagnostics.attention_maps import cross_attention, plot_attention
from keras_addnorm.diagnostics.gradients import LossGradients, loss_gradients
from keras_addnorm.diagnostics.monitor import ResidualMonitor
from keras_addnorm.diagnostics.observe import Observation, SublayerRecord, observe
from keras_addnorm.diagnostics.residual_log import ResidualLog, ResidualRow

__all__ = [
    "LossGradients",
    "Observation",
    "ResidualLog",
    "ResidualMonitor",
    "ResidualRow",
    "SublayerRecord",
    "cross_attention",
    "loss_gradients",
    "observe",
    "plot_attention",
]
