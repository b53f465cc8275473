"""Whole runs: a configuration in; a trained, evaluated and exported translator out.

A *run* is a directory (`RunDirectory`) that a configuration (`RunConfig`) fills: tokeniser,
weights, log, curves, scores. The command line is a thin skin over this room; everything it does can
be called from Python:

```python
from keras_addnorm.runs import RunConfig, RunDirectory
from keras_addnorm.runs.train import train

config = RunConfig.from_dict({"data": "demo", "source": "en", "target": "de"})
train(config, RunDirectory("runs/demo"))
```

Importing this room is cheap, so that `keras-addnorm --help` answers at once: Keras and TensorFlow
are imported by its modules `train`, `evaluate` and `demo`, and by `export` when it exports.
"""

from keras_addnorm.runs.directory import RunDirectory
from keras_addnorm.runs.errors import UserError
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
