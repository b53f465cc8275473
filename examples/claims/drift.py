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
BRANCHES = ONE, TWO = "one matrix", "two matrices"
MEASURES = ("mean", "std", "common")
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
                    scheme, activation, through == TWO, seed
                ),
            )
            for seed in lab.scale.seeds
        ]
        for scheme in SCHEMES
        for activation in ACTIVATIONS
        for through in BRANCHES
    }

    def last(scheme: str, activation: str, measure: str, through: str) -> list[float]:
        return [one[measure][-1] for one in found[scheme, activation, through]]

    path = images.path("drift")
    with picture(path, panels=2, width=9.5) as axes:
        for axis, activation in zip(axes, ("relu", "gelu"), strict=True):
            for scheme in SCHEMES:
                means = np.abs([one["mean"] for one in found[scheme, activation, ONE]])
                line = {**style(scheme), "markevery": 4}
                axis.semilogy(np.arange(LAYERS + 1), np.maximum(means.mean(0), 1e-9), **line)
            axis.set(xlabel="layer", ylabel=f"|mean| of the stream, {activation}", ylim=(1e-4, 1e6))
        axes[0].legend()
    tables = [
        table(
            [f"branch of {through}", "mean", "standard deviation", "the same in all rows"],
            [
                [
                    f"`{scheme}`, {activation}",
                    *(spread(last(scheme, activation, measure, through)) for measure in MEASURES),
                ]
                for scheme in SCHEMES
                for activation in ACTIVATIONS
            ],
        )
        for through in BRANCHES
    ]

    def mean(scheme: str, activation: str, measure: str = "mean", through: str = ONE) -> float:
        return float(np.mean(last(scheme, activation, measure, through)))

    def factor(activation: str) -> float:
        """By how much the stream's size grows in each layer without a norm."""
        return float(mean("no_norm", activation, "std") ** (1 / LAYERS))

    def off_centre(activation: str, through: str) -> float:
        return abs(mean("no_norm", activation, through=through)) / mean(
            "no_norm", activation, "std", through
        )

    curved = ("relu", "gelu")
    return Section(
        title="ReLU and GELU shift mean and scale, and adding compounds it",
        claim="The activation moves the mean away from 0 and changes the scale; each addition "
        "stacks that on what came before, so that it grows exponentially with depth; the norm "
        "takes it away.",
        formula=FORMULA,
        experiment=f"{LAYERS} layers of width {WIDTH} read {ROWS} rows of noise, mean 0 and "
        f"standard deviation 1. A branch is a matrix and its activation; and once more with a "
        "second matrix behind the activation, as in a Transformer's feed-forward network. First "
        f"kernels as He et al. draw them, {len(lab.scale.seeds)} seeds. Mean and standard "
        "deviation are those of the last layer's stream, over all rows and features. The last "
        "column is the share of its mean square that all rows have in common: the mean of each "
        "feature over the rows. Cells: the mean of the seeds, and the smallest and largest.",
        findings=[
            images.markdown(path, "Mean of the stream by layer, ReLU and GELU, one line a scheme"),
            *tables,
        ],
        verdict=Verdict.of(
            all(off_centre(name, ONE) > 10 * off_centre("linear", ONE) for name in curved),
            all(factor(name) > 1.2 for name in curved),
            all(off_centre(name, TWO) > 10 * off_centre("linear", TWO) for name in curved),
            all(mean("post_ln", name, "common") < 0.1 for name in curved),
        ),
        because="Added as they are, ReLU and GELU push the whole stream to one side: the mean is "
        f"{off_centre('relu', ONE):.2f} and {off_centre('gelu', ONE):.2f} standard deviations, and "
        f"{off_centre('linear', ONE):.3f} without an activation. The growth is exponential, by "
        f"{factor('relu'):.2f} and {factor('gelu'):.2f} a layer. But that of the scale is the work "
        f"of the addition: without an activation it is {factor('linear'):.2f}. A Transformer has a "
        "second matrix behind the activation, which leads the shift into another direction: the "
        f"mean over all features is then {off_centre('relu', TWO):.3f} standard deviations with "
        f"ReLU, but {mean('no_norm', 'relu', 'common', TWO):.2f} of the stream's mean square is "
        f"the same in all rows, against {mean('no_norm', 'linear', 'common', TWO):.3f} without an "
        "activation. LayerNorm takes mean and scale away, in Post-LN behind each addition; in "
        "Pre-LN for the branch alone, so that the stream's mean still moves, but by a like amount "
        f"each time, to {number(mean('pre_ln', 'relu'))} with ReLU. What all rows have in common "
        f"it cannot take away, as it sees one row at a time: with Post-LN and ReLU "
        f"{mean('post_ln', 'relu', 'common'):.2f} and {mean('post_ln', 'relu', 'common', TWO):.2f} "
        "of the mean square: with one matrix it is the mean, with two another direction.",
    )


def stream(scheme: str, activation: str, two_matrices: bool, seed: int) -> Result:
    """Mean and size of the stream before the first layer and behind each, and what rows share."""
    keras.utils.set_random_seed(seed)
    x = np.random.default_rng(seed).standard_normal((ROWS, WIDTH)).astype("float32")
    found: Result = {name: [] for name in MEASURES}
    for layer in range(LAYERS + 1):
        found["mean"].append(float(np.mean(x, dtype="float64")))
        found["std"].append(float(np.std(x, dtype="float64")))
        found["common"].append(common_share(x))
        if layer < LAYERS:
            x = np.asarray(
                keras.ops.convert_to_numpy(AddNorm(scheme)(x, branch(activation, two_matrices)))
            )
    return found


def common_share(x: np.ndarray) -> float:
    """The share of the mean square of `(rows, features)` that is the same in all rows."""
    x = np.asarray(x, "float64")
    return float(np.mean(np.mean(x, axis=0) ** 2) / np.mean(x**2))


def branch(activation: str, two_matrices: bool) -> keras.layers.Layer:
    """A matrix and its activation; with a second matrix, a feed-forward network."""
    he = keras.initializers.HeNormal
    first = keras.layers.Dense(WIDTH, activation=activation, kernel_initializer=he())
    if not two_matrices:
        return first
    # Glorot: behind an activation, the second matrix keeps the size.
    return keras.Sequential([first, keras.layers.Dense(WIDTH)])
