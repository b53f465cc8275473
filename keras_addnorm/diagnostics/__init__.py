"""Looking into a model from outside, without a line in any layer."""

from keras_addnorm.diagnostics.attention_maps import cross_attention, plot_attention

__all__ = ["cross_attention", "plot_attention"]
