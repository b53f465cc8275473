"""Exports to other runtimes. Each needs a package of its own, imported when it is used."""

from keras_addnorm.interop.ctranslate2 import export_ctranslate2
from keras_addnorm.interop.litert import export_litert
from keras_addnorm.interop.onnx import export_onnx

__all__ = ["export_ctranslate2", "export_litert", "export_onnx"]
