"""Claim 14: inputs of different scales, and what LayerNorm and BatchNorm cost."""

from __future__ import annotations

import time

import keras
import numpy as np

from claims.drawing import picture, style
from claims.images import Images
from claims.lab import Lab, Result
from claims.page import Section, Verdict, number, table
from claims.seeds import apart, spread
from keras_addnorm import norms

FEATURES, WIDTH, ROWS, BATCH = 16, 32, 2048, 64
INPUTS = ("alike", "different")
NETWORKS = {  # where a norm stands: in front of the first matrix, behind each matrix
    "no norm": (None, None),
    "standardised by hand": ("by hand", None),
    "`layer_norm` in front": ("layer_norm", None),
    "`layer_norm` in each layer": (None, "layer_norm"),
    "`batch_norm` in front": ("batch_norm", None),
    "`batch_norm` in each layer": (None, "batch_norm"),
}
TIMED = ("layer_norm", "batch_norm")
FORMULA = r"""
Features of different scales and off centre, $x_j = s_j z_j + m_j$. BatchNorm takes mean and
variance over the rows, for each feature: it gives $z_j$ back. LayerNorm takes them over the
features of a row: the feature with the largest $s_j$ decides, and the small ones stay small.
"""


def section(lab: Lab, images: Images) -> Section:
    """Regression on features of like and of different scales; the time of both norms."""
    updates = 2 * lab.scale.steps
    found = {
        (inputs, network): [
            lab.measure(
                "regression on scaled features",
                {"inputs": inputs, "network": network, "seed": seed},
                lambda inputs=inputs, network=network, seed=seed: regression(
                    inputs, network, seed, updates
                ),
            )
            for seed in lab.scale.seeds
        ]
        for inputs in INPUTS
        for network in NETWORKS
    }
    sizes = (lab.scale.batch_sizes[0], lab.scale.batch_sizes[-1])
    cost = {
        size: lab.measure("time of norms", {"batch_size": size}, lambda size=size: times(size))
        for size in sizes
    }
    path = images.path("inputs")
    lines = dict(
        zip(
            NETWORKS,
            ("plain", "rezero", "layer_norm", "pre_ln", "batch_norm", "post_ln"),
            strict=True,
        )
    )
    with picture(path, panels=2, width=9.5) as axes:
        for axis, inputs in zip(axes, INPUTS, strict=True):
            for network, line in lines.items():
                curves = np.array([one["losses"] for one in found[inputs, network]])
                shown = curves.mean(0)
                look = {**style(line), "label": network.replace("`", ""), "markevery": 3}
                look["linestyle"] = ":" if "in front" in network else "-"
                axis.semilogy(found[inputs, network][0]["updates"], shown, **look)
            axis.set(xlabel="update", title=f"features of {inputs} scales", ylim=(0.02, 3))
        axes[0].set_ylabel("held-out error, as a share of the variance")
        axes[0].legend(fontsize=8)
    error = {key: [one["losses"][-1] for one in several] for key, several in found.items()}
    rows = [
        [network, *(spread(error[inputs, network]) for inputs in INPUTS)] for network in NETWORKS
    ]
    timed = [
        [
            f"{size} of {LENGTH} positions",
            *(f"{cost[size][name][way]:.3f}" for name in TIMED for way in WAYS),
        ]
        for size in sizes
    ]

    def ratio(size: int, way: str) -> float:
        return float(cost[size]["batch_norm"][way] / cost[size]["layer_norm"][way])

    def mean(inputs: str, network: str) -> str:
        return number(float(np.mean(error[inputs, network])))

    different = {network: error["different", network] for network in NETWORKS}
    return Section(
        title="Inputs of different scales, and the time of a norm",
        claim="Inputs of different scales and off centre make training slow, and norms repair "
        "that; BatchNorm is slower than LayerNorm.",
        formula=FORMULA,
        experiment=f"A network of two hidden layers of {WIDTH} (ReLU) learns a smooth function of "
        f"{FEATURES} features from {ROWS} rows: {updates} updates of Adam at 0.003, "
        f"{len(lab.scale.seeds)} seeds. Features are alike (mean 0, standard deviation 1), or the "
        "same ones of different scales: standard deviations from 0.01 to 100, and means of up to "
        "three of them. Errors are those of other rows, in inference, as shares of the variance. "
        f"For the time, {STACKED} norms one behind the other at width {TIMED_WIDTH}, compiled with "
        "XLA where the backend has it; both norms in turn, the fastest of the rounds, per norm.",
        findings=[
            images.markdown(path, "Held-out error by update, for both kinds of features"),
            table(["held-out error at the end", "alike", "different scales"], rows),
            table(["milliseconds", *(f"`{name}`, {way}" for name in TIMED for way in WAYS)], timed),
        ],
        verdict=Verdict.of(
            apart(error["alike", "no norm"], different["no norm"]),
            apart(different["`batch_norm` in front"], different["no norm"]),
            apart(different["`layer_norm` in front"], different["no norm"]),
            all(ratio(size, WAYS[1]) > 1.1 for size in sizes),
        ),
        because="Different scales leave an error of "
        f"{mean('different', 'no norm')} without a norm, where like ones leave "
        f"{mean('alike', 'no norm')}. BatchNorm in front brings it to "
        f"{mean('different', '`batch_norm` in front')}, standardising by hand to "
        f"{mean('different', 'standardised by hand')}. LayerNorm does not do that work: in front "
        f"it leaves {mean('different', '`layer_norm` in front')}, in each layer "
        f"{mean('different', '`layer_norm` in each layer')}. Features of different scales are to "
        "be standardised before the model; in a Transformer the inputs are embeddings, all of one "
        "scale. *Time:* "
        + "; ".join(
            f"with {size} a batch, a BatchNorm takes {ratio(size, WAYS[1]):.2f} times as long as a "
            f"LayerNorm in training, and {ratio(size, WAYS[0]):.2f} times in inference"
            for size in sizes
        )
        + ". These are one machine's CPUs; what BatchNorm costs between devices is not in it.",
    )


def rows_of(inputs: str, seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Features `(count, FEATURES)` of like or different scales, and the wanted numbers."""
    task, draw = np.random.default_rng(seed), np.random.default_rng((seed, count))
    first, second = task.normal(size=(2, FEATURES, 2)) / np.sqrt(FEATURES)
    scale = task.permutation(np.geomspace(0.01, 100, FEATURES))
    offset = scale * task.uniform(-3, 3, FEATURES)
    z = draw.normal(size=(count, FEATURES))
    wanted = np.sum(np.sin(2 * z @ first) + z @ second, axis=1)
    x = z if inputs == "alike" else scale * z + offset
    return x.astype("float32"), (wanted[:, None]).astype("float32")


def network_of(in_front: str | None, behind: str | None) -> keras.Model:
    """Two hidden layers, with a norm in front of them or behind the matrix of each."""
    x = inputs = keras.Input((FEATURES,))
    if in_front is not None:
        x = norms.get(in_front)()(x)
    for _ in range(2):
        x = keras.layers.Dense(WIDTH)(x)
        if behind is not None:
            x = norms.get(behind)()(x)
        x = keras.layers.ReLU()(x)
    return keras.Model(inputs, keras.layers.Dense(1)(x))


def regression(inputs: str, network: str, seed: int, updates: int) -> Result:
    """Held-out errors along a training."""
    in_front, behind = NETWORKS[network]
    (x, wanted), (other, other_wanted) = rows_of(inputs, seed, ROWS), rows_of(inputs, seed, 512)
    if in_front == "by hand":
        mean, std, in_front = x.mean(axis=0), x.std(axis=0), None
        x, other = (x - mean) / std, (other - mean) / std
    keras.utils.set_random_seed(seed)
    model = network_of(in_front, behind)
    model.compile(keras.optimizers.Adam(0.003), "mse", jit_compile=True)
    order = np.random.default_rng(seed)
    found: Result = {"updates": [], "losses": []}
    for update in range(updates + 1):
        if update % max(1, updates // 20) == 0:
            error = float(model.test_on_batch(other, other_wanted))
            found["updates"].append(update)
            found["losses"].append(error / float(np.var(other_wanted)))
        picked = order.integers(ROWS, size=BATCH)
        model.train_on_batch(x[picked], wanted[picked])
    return found


STACKED, LENGTH, TIMED_WIDTH, ROUNDS = 8, 24, 256, 60
WAYS = ("inference", "training step")


def times(batch_size: int) -> Result:
    """Milliseconds of one norm in a stack of them: forward, and forward, backward and update."""
    x = np.random.default_rng(1).normal(size=(batch_size, LENGTH, TIMED_WIDTH)).astype("float32")
    models = {}
    for name in TIMED:
        y = inputs = keras.Input((LENGTH, TIMED_WIDTH))
        for _ in range(STACKED):
            y = norms.get(name)()(y)
        models[name] = keras.Model(inputs, y)
        models[name].compile(keras.optimizers.SGD(1e-3), "mse", jit_compile=True)
    found = {name: dict.fromkeys(WAYS, float("inf")) for name in TIMED}
    for _ in range(ROUNDS):
        for name, model in models.items():
            calls = (lambda m=model: m.predict_on_batch(x), lambda m=model: m.train_on_batch(x, x))
            for way, call in zip(WAYS, calls, strict=True):
                started = time.perf_counter()
                call()
                milliseconds = 1000 * (time.perf_counter() - started) / STACKED
                found[name][way] = min(found[name][way], milliseconds)
    return found
