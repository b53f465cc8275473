"""The commands of `keras-addnorm`, each in its file: help text, arguments, check and work.

Heavy packages are imported when a command runs, so that `--help` answers at once.
"""

from keras_addnorm.runs.commands.command import Command
from keras_addnorm.runs.commands.data import DATA
from keras_addnorm.runs.commands.demo import DEMO
from keras_addnorm.runs.commands.distill import DISTILL
from keras_addnorm.runs.commands.evaluate import EVALUATE
from keras_addnorm.runs.commands.explain import EXPLAIN
from keras_addnorm.runs.commands.export import EXPORT
from keras_addnorm.runs.commands.import_pretrained import IMPORT
from keras_addnorm.runs.commands.inspect import INSPECT
from keras_addnorm.runs.commands.prune import PRUNE
from keras_addnorm.runs.commands.serve import SERVE
from keras_addnorm.runs.commands.train import TRAIN
from keras_addnorm.runs.commands.translate import TRANSLATE
from keras_addnorm.runs.commands.zoo import ZOO

__all__ = ["COMMANDS", "Command"]

# The ONE table of commands.
COMMANDS = {
    "demo": DEMO,
    "train": TRAIN,
    "import": IMPORT,
    "evaluate": EVALUATE,
    "translate": TRANSLATE,
    "export": EXPORT,
    "serve": SERVE,
    "inspect": INSPECT,
    "explain": EXPLAIN,
    "data": DATA,
    "prune": PRUNE,
    "distill": DISTILL,
    "zoo": ZOO,
}
