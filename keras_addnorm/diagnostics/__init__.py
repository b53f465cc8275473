"""Looking into a model from outside, without a line in any layer."""

from keras_addnorm.diagnostics.attention_maps import cross_attention, plot_attention
from keras_addnorm.diagnostics.residual_log import ResidualLog, ResidualRow

__all__ = ["ResidualLog", "ResidualRow", "cross_attention", "plot_attention"]
