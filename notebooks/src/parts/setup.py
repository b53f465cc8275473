import importlib.util
import logging
import os

if importlib.util.find_spec("keras_addnorm") is None:  # then install it
    from IPython import get_ipython

    in_clone = '-c ../constraints.txt "..[demo,serve]"'
    wanted = in_clone if os.path.isfile("../pyproject.toml") else '"keras-addnorm[demo,serve]"'
    get_ipython().run_line_magic("pip", f"install -q {wanted}")
    importlib.invalidate_caches()
    if importlib.util.find_spec("keras_addnorm") is None:
        raise SystemExit("Not installed. Clone the repository, and run this in its notebooks/.")

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # TensorFlow need not tell us about GPUs

import keras
import matplotlib.pyplot as plt
import numpy as np

logging.getLogger("tensorflow").setLevel(logging.ERROR)  # or about tracing
keras.utils.set_random_seed(1)
keras.ops.zeros(1)  # now TensorFlow has said what it found on this machine
plt.rcParams.update(
    {
        "figure.dpi": 72,
        "figure.constrained_layout.use": True,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "axes.spines.top": False,
        "axes.spines.right": False,
        # Okabe and Ito's colours, which the colour-blind can tell apart.
        "axes.prop_cycle": plt.cycler(
            color=["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777"]
        ),
    }
)
