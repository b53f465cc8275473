"""Keras layers. Every weight of the library lives here; nothing but Keras is imported.

Shape letters, used in all comments and docstrings:

B batch, T target (query) length, S source (key) length, D hidden width, H heads, G key/value
heads, K head width, F intermediate width, V vocabulary, L layers.
"""

from keras_addnorm import norms
from keras_addnorm.layers.add_norm import AddNorm
from keras_addnorm.layers.attention import MultiHeadCrossAttention, MultiHeadSelfAttention
from keras_addnorm.layers.attention_config import AttentionConfig
from keras_addnorm.layers.average_attention import AverageAttention
from keras_addnorm.layers.block_config import BlockConfig
from keras_addnorm.layers.decoder_layer import TransformerDecoderLayer
from keras_addnorm.layers.encoder_layer import TransformerEncoderLayer
from keras_addnorm.layers.feed_forward import FeedForward
from keras_addnorm.layers.head_diversity import HeadDiversity
from keras_addnorm.layers.positional_embedding import PositionalEmbedding
from keras_addnorm.layers.projection import Projection
from keras_addnorm.layers.recurrent_attention import RecurrentSelfAttention
from keras_addnorm.layers.ssru import SSRU
from keras_addnorm.layers.stacks import TransformerDecoder, TransformerEncoder

__all__ = [
    "SSRU",
    "AddNorm",
    "AttentionConfig",
    "AverageAttention",
    "BlockConfig",
    "FeedForward",
    "HeadDiversity",
    "MultiHeadCrossAttention",
    "MultiHeadSelfAttention",
    "PositionalEmbedding",
    "Projection",
    "RecurrentSelfAttention",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

# Keras makes the layers of a file from classes that have been imported.
norms.load()
