"""Models of other toolkits, in and out. What needs a package of its own imports it when used."""

from keras_addnorm.interop import families
from keras_addnorm.interop.bergamot import export_bergamot
from keras_addnorm.interop.browser_page import BrowserPage
from keras_addnorm.interop.ctranslate2 import export_ctranslate2
from keras_addnorm.interop.families.generation_settings import GenerationSettings
from keras_addnorm.interop.folders import require_intact
from keras_addnorm.interop.litert import export_litert
from keras_addnorm.interop.onnx import export_onnx
from keras_addnorm.interop.pretrained import Pretrained, load_pretrained, save_pretrained
from keras_addnorm.interop.random_folder import make_random_folder

__all__ = [
    "BrowserPage",
    "GenerationSettings",
    "Pretrained",
    "export_bergamot",
    "export_ctranslate2",
    "export_litert",
    "export_onnx",
    "families",
    "load_pretrained",
    "make_random_folder",
    "require_intact",
    "save_pretrained",
]
