"""Claim 10: ReLU and GELU shift mean and scale, and adding compounds it."""

from __future__ import annotations

import keras
import numpy as np

from claims.drawing import picture, style
from claims.images import Images
from claims.lab import Lab, Result
from claims.page import Section, Verdict, number, table
from claims.seeds import spread
from keras_addnorm.layers import AddNorm

SCHEMES = ("plain", "no_norm", "post_ln", "pre_ln")
ACTIVATIONS = ("linear", "relu", "gelu")
LAYERS = 24
WIDTH, ROWS = 64, 512
FORMULA = r"""
For $z \sim N(0, 1)$, $\mathrm{E} \, \mathrm{ReLU}(z) = 1 / \sqrt{2 \pi} \approx 0.40$ with the
standard deviation $\sqrt{1/2 - 1/(2 \pi)} \approx 0.58$, and $\mathrm{E} \, \mathrm{GELU}(z) =
1 / (2 \sqrt{\pi}) \approx 0.28$. Add such branches to a stream of mean $m_\ell$ and standard
deviation $s_\ell$,

$$
x_{\ell + 1} = x_\ell + a(W_\ell x_\ell) \quad \Rightarrow \quad
m_{\ell + 1} = m_\ell + \mathrm{E} \, a(W_\ell x_\ell)
$$

and the mean moves by a number that is never negative, and grows as $s_\ell$ does.
"""


def section(lab: Lab, images: Images) -> Section:
    """Send noise through deep stacks of each activation and scheme."""
    found = {
        (scheme, activation, through): [
            lab.measure(
                "mean and scale by depth",
                {"scheme": scheme, "activation": activation, "through": through, "seed": seed},
                lambda scheme=scheme, activation=activation, through=through, seed=seed: stream(
                    scheme, activation, through == "two matrices", seed
                ),
            )
            for seed in lab.scale.seeds
        ]
        for scheme in SCHEMES
        for activation in ACTIVATIONS
        for through in ("one matrix", "two matrices")
    }

    def last(scheme: str, activation: str, measure: str, through: str) -> list[float]:
        return [one[measure][-1] for one in found[scheme, activation, through]]

    path = images.path("drift")
    with picture(path, panels=2, width=9.5) as axes:
        for axis, activation in zip(axes, ("relu", "gelu"), strict=True):
            for scheme in SCHEMES:
                means = np.abs([one["mean"] for one in found[scheme, activation, "one matrix"]])
                line = {**style(scheme), "markevery": 4}
                axis.semilogy(np.arange(LAYERS + 1), np.maximum(means.mean(0), 1e-9), **line)
            axis.set(
                xlabel="layer", ylabel=f"|mean| of the stream, {activation}", ylim=(1e-4, 1e9)
            )
        axes[0].legend()
    rows = [
        [
            f"`{scheme}`, {activation}",
            spread(last(scheme, activation, "mean", "one matrix")),
            spread(last(scheme, activation, "std", "one matrix")),
            spread(last(scheme, activation, "mean", "two matrices")),
            spread(last(scheme, activation, "std", "two matrices")),
        ]
        for scheme in SCHEMES
        for activation in ACTIVATIONS
    ]

    def mean(scheme: str, activation: str, measure: str = "mean", through: str = "one") -> float:
        through = {"one": "one matrix", "two": "two matrices"}[through]
        return float(np.mean(last(scheme, activation, measure, through)))

    def factor(activation: str) -> float:
        """By how much the stream's size grows in each layer without a norm."""
        return float(mean("no_norm", activation, "std") ** (1 / LAYERS))

    shifts = all(mean("no_norm", name) > 100 * abs(mean("no_norm", "linear")) for name in ("relu",))
    return Section(
        title="ReLU and GELU shift mean and scale, and adding compounds it",
        claim="The activation moves the mean away from 0 and changes the scale; each addition "
        "stacks that on what came before, so that it grows exponentially with depth; the norm "
        "takes it away.",
        formula=FORMULA,
        experiment=f"{LAYERS} layers of width {WIDTH} read {ROWS} rows of noise, mean 0 and "
        f"standard deviation 1. A branch is a matrix and its activation; and once more with a second "
        "matrix behind the activation, as in a Transformer's feed-forward network. Kernels as He et "
        f"al. draw them, {len(lab.scale.seeds)} seeds. Numbers are those of the last layer, over all "
        "rows and features: the mean of the seeds, and the smallest and largest.",
        findings=[
            images.markdown(path, "Mean of the stream by layer, ReLU and GELU, one line a scheme"),
            table(
                [
                    "",
                    "mean, one matrix",
                    "standard deviation",
                    "mean, two matrices",
                    "standard deviation",
                ],
                rows,
            ),
        ],
        verdict=Verdict.of(
            shifts,
            factor("relu") > 1.2 and factor("gelu") > 1.2,
            all(abs(mean("post_ln", name)) < 1e-3 for name in ACTIVATIONS),
            abs(mean("no_norm", "relu", through="two"))
            > 0.3 * mean("no_norm", "relu", "std", through="two"),
        ),
        because="Where the activation is added as it is, the mean runs away: to "
        f"{number(mean('no_norm', 'relu'))} with ReLU and {number(mean('no_norm', 'gelu'))} with "
        f"GELU, against {number(mean('no_norm', 'linear'))} without an activation. The growth is "
        f"exponential, by {factor('relu'):.2f} and {factor('gelu'):.2f} a layer; but that of the "
        f"scale is the addition's work, not the activation's: without one it is "
        f"{factor('linear'):.2f}. A Transformer has a second matrix behind the activation, which "
        "makes the shift another one in each feature: over all features the mean is "
        f"{number(mean('no_norm', 'relu', through='two'))} at a standard deviation of "
        f"{number(mean('no_norm', 'relu', 'std', 'two'))}. LayerNorm in Post-LN puts both back in "
        "each layer; in Pre-LN it does so for the branch alone, so that the stream's mean still "
        f"moves, but by a like amount each time: to {number(mean('pre_ln', 'relu'))} with ReLU.",
    )


def stream(scheme: str, activation: str, two_matrices: bool, seed: int) -> Result:
    """Mean and standard deviation of the stream before the first layer and behind each."""
    keras.utils.set_random_seed(seed)
    x = np.random.default_rng(seed).standard_normal((ROWS, WIDTH)).astype("float32")
    found: Result = {"mean": [], "std": []}
    for layer in range(LAYERS + 1):
        found["mean"].append(float(np.mean(x, dtype="float64")))
        found["std"].append(float(np.std(x, dtype="float64")))
        if layer < LAYERS:
            x = np.asarray(
                keras.ops.convert_to_numpy(AddNorm(scheme)(x, branch(activation, two_matrices)))
            )
    return found


def branch(activation: str, two_matrices: bool) -> keras.layers.Layer:
    """A matrix and its activation; with a second matrix, a feed-forward network."""
    he = keras.initializers.HeNormal
    first = keras.layers.Dense(WIDTH, activation=activation, kernel_initializer=he())
    if not two_matrices:
        return first
    # Glorot: behind an activation, the second matrix keeps the size.
    return keras.Sequential([first, keras.layers.Dense(WIDTH)])
