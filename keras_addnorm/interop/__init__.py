"""Models for other programs. Each needs a package of its own, imported when it is asked for."""

from keras_addnorm.interop.ctranslate2 import export_ctranslate2

__all__ = ["export_ctranslate2"]
