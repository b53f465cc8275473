"""Models of other toolkits, in and out. What needs a package of its own imports it when it is used."""

from keras_addnorm.interop import families
from keras_addnorm.interop.ctranslate2 import export_ctranslate2
from keras_addnorm.interop.generation_settings import GenerationSettings
from keras_addnorm.interop.litert import export_litert
from keras_addnorm.interop.onnx import export_onnx
from keras_addnorm.interop.pretrained import Pretrained, load_pretrained, save_pretrained

__all__ = [
    "GenerationSettings",
    "Pretrained",
    "export_ctranslate2",
    "export_litert",
    "export_onnx",
    "families",
    "load_pretrained",
    "save_pretrained",
]
