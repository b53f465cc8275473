"""A page that runs trained models: "Add & Norm by hand", for those who learn.

`page` puts models, tokenizers and what was recorded of their training into one HTML file, which
computes each sublayer in the browser and draws what it computes.
"""

from keras_addnorm.explain.described_model import DescribedModel, describe_model
from keras_addnorm.explain.described_tokenizer import describe_tokenizer
from keras_addnorm.explain.packed_weights import as_packed
from keras_addnorm.explain.page_file import ExplainedRun, page, remade_page
from keras_addnorm.explain.steps import explained_schemes, steps_of
from keras_addnorm.schemes import Step

__all__ = [
    "DescribedModel",
    "ExplainedRun",
    "Step",
    "as_packed",
    "describe_model",
    "describe_tokenizer",
    "explained_schemes",
    "page",
    "remade_page",
    "steps_of",
]
