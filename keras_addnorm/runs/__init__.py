"""Whole runs: from a configuration to a trained, evaluated and exported translator.

A *run* is a directory (`RunDirectory`) with all that one configuration (`RunConfig`) leads to:
tokenizers, weights, log, curves, scores. The command line is a thin layer over this package;
everything it does can be called from Python:

```python
from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs.train import train

config = RunConfig.from_dict({"data": "demo", "source": "en", "target": "de"})
train(config, RunDirectory("runs/demo"))
```

Importing this package is cheap, so that `keras-addnorm --help` answers at once. Its modules
`train`, `evaluate` and `demo` import Keras and TensorFlow, and so does `export` when it exports.
"""

from keras_addnorm.basics.errors import UserError
from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.settings import (
    EvaluationConfig,
    ModelChoice,
    RunConfig,
    TokenizerConfig,
    TrainingConfig,
)

__all__ = [
    "EvaluationConfig",
    "ModelChoice",
    "RunConfig",
    "RunDirectory",
    "TokenizerConfig",
    "TrainingConfig",
    "UserError",
]
