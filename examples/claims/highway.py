"""Claim 2: the skip connection is a highway for gradients."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np
from keras import ops

from claims.drawing import picture, style
from claims.images import Images
from claims.lab import Lab, Result
from claims.page import Section, Verdict, number, table
from keras_addnorm.diagnostics import loss_gradients, observe
from keras_addnorm.layers import AddNorm, TransformerEncoder

SCHEMES = ("plain", "no_residual", "no_norm", "post_ln", "pre_ln")
FORMULA = r"""
$$
H = x + F(x): \quad
\frac{\partial L}{\partial x} =
\frac{\partial L}{\partial H} \left(1 + \frac{\partial F}{\partial x}\right)
$$

$$
H = F(x): \quad
\frac{\partial L}{\partial x} = \frac{\partial L}{\partial H} \, \frac{\partial F}{\partial x}
$$
"""


def section(lab: Lab, images: Images) -> Section:
    """Measure gradients along stacks with and without the skip, and check the formula."""
    depths = lab.scale.depths
    profiles = {
        (scheme, depth): lab.measure(
            "gradients along a stack",
            {"scheme": scheme, "depth": depth},
            lambda scheme=scheme, depth=depth: gradient_profile(
                scheme, depth, lab.scale.hidden_dim, lab.scale.seed
            ),
        )["norms"]
        for scheme in SCHEMES
        for depth in depths
    }
    identity = {
        depth: lab.measure(
            "identity of the highway",
            {"depth": depth},
            lambda depth=depth: check_identity(depth, lab.scale.hidden_dim, lab.scale.seed),
        )
        for depth in depths
    }
    deep = depths[-1]
    path = images.path("highway")
    with picture(path) as axis:
        for scheme in SCHEMES:
            norms = np.array(profiles[scheme, deep])
            line = {**style(scheme), "markevery": 4}
            axis.semilogy(np.arange(len(norms)), np.maximum(norms / norms[-1], 1e-18), **line)
        axis.set(
            xlabel=f"sublayer, in order (encoder of {deep} layers)",
            ylabel="‖∂L/∂x‖, relative to the last sublayer's",
        )
        axis.legend(ncols=2)

    ratio = {key: norms[0] / norms[-1] for key, norms in profiles.items()}
    error = max(found["error"] for found in identity.values())
    rows = [
        [f"`{scheme}`", *(number(ratio[scheme, depth]) for depth in depths)] for scheme in SCHEMES
    ]
    shares = identity[deep]["branch_share"]
    return Section(
        title="The skip connection is a highway for gradients",
        claim="The gradient reaches a sublayer's input by two ways, and the one over the skip "
        "multiplies it by exactly 1; without the skip it has to pass every Jacobian in turn.",
        formula=FORMULA,
        experiment="Encoders at initialisation, in float64; L is a random linear function of the "
        "output. The table holds ‖∂L/∂x‖ at the first sublayer over that at the last.",
        findings=[
            images.markdown(path, "Gradient norm at each sublayer, one line a scheme"),
            table(["first / last, encoder layers", *(str(depth) for depth in depths)], rows),
            "*The formula itself.* In a stack with the skip alone (`no_norm`), ∂L/∂x through the "
            "whole model and ∂L/∂H plus its product with the Jacobian of the branch differ by "
            f"{number(error)} at most, relatively. At depth {deep} the branches contribute between "
            f"{min(shares):.2f} and {max(shares):.2f} times as much as the skip.",
        ],
        verdict=Verdict.of(
            error < 1e-10,
            ratio["plain", deep] < 1e-2 * min(1.0, ratio["pre_ln", deep]),
        ),
        because=f"At {deep} layers, `plain` keeps {number(ratio['plain', deep])} of the gradient "
        "on its way from the last sublayer to the first, `pre_ln` "
        f"{number(ratio['pre_ln', deep])}. "
        "A large gradient is not enough: `no_residual` hands one of "
        f"{number(ratio['no_residual', deep])} to its first sublayer and does not train (claim 1), "
        "as the stream has forgotten which token it came from. And the skip alone does not bound "
        f"it: with `no_norm`, the gradient grows {number(ratio['no_norm', deep])} times.",
    )


def gradient_profile(scheme: str, depth: int, hidden_dim: int, seed: int) -> Result:
    """The norm of the gradient at each sublayer's input, first sublayer first."""
    with _float64():
        encoder, x, direction = _encoder(scheme, depth, hidden_dim, seed)
        found = loss_gradients(encoder, x, direction, _along)
    return {"norms": [float(np.linalg.norm(gradient)) for gradient in found.residuals.values()]}


def check_identity(depth: int, hidden_dim: int, seed: int) -> Result:
    """Compare dL/dx through a whole stack with dL/dH (1 + dF/dx), sublayer by sublayer.

    Returns the largest relative error; that of the same product by central differences; and by
    sublayer the norm of the branch's part of the gradient over the skip's.
    """
    rng = np.random.default_rng(seed)
    with _float64():
        encoder, x, direction = _encoder("no_norm", depth, hidden_dim, seed)
        with observe(encoder) as observation:
            encoder(x)
        gradients = loss_gradients(encoder, x, direction, _along).residuals
        names = [record.name for record in observation]
        behind = [*(gradients[name] for name in names[1:]), direction]
        errors, difference_errors, shares = [], [], []
        for name, after in zip(names, behind, strict=True):
            whole, x = gradients[name], observation[name].residual
            branch = _Branch(encoder, name)
            (by_branch,) = loss_gradients(branch, x, after, _along).residuals.values()
            errors.append(_relative_error(after + by_branch, whole))
            shares.append(float(np.linalg.norm(by_branch) / np.linalg.norm(after)))
            if name.endswith("feed_forward"):  # JAX rounds attention weights to float32
                difference_errors.append(_difference_error(branch, x, after, whole, rng))
    return {
        "error": max(errors),
        "difference_error": float(np.median(difference_errors)),
        "branch_share": shares,
    }


class _Branch(keras.layers.Layer):
    """A sublayer of an encoder without its skip, with the same weights."""

    def __init__(self, encoder: TransformerEncoder, name: str) -> None:
        super().__init__(dtype="float64")
        _, index, sublayer = name.split("/")
        self.sublayer = getattr(encoder.layers[int(index)], sublayer)
        self.add_norm = AddNorm(scheme="plain", dtype="float64", name=sublayer)

    def call(self, x: Any) -> Any:
        return self.add_norm(x, self.sublayer)


def _difference_error(
    branch: _Branch, x: Any, after: np.ndarray, whole: np.ndarray, rng: np.random.Generator
) -> float:
    """Compare dL/dx along a direction with the difference of H = x + F(x) along it."""
    step = 1e-6 * rng.standard_normal(whole.shape)
    ahead, back = (
        _array(branch(ops.convert_to_tensor(_array(x) + side * step, "float64")))
        for side in (1, -1)
    )
    expected = np.sum(whole * step)
    found = np.sum(after * (step + (ahead - back) / 2))
    return float(abs(found - expected) / abs(expected))


def _encoder(scheme: str, depth: int, hidden_dim: int, seed: int) -> Any:
    keras.utils.set_random_seed(seed)
    encoder = TransformerEncoder(
        depth, num_heads=2, intermediate_dim=2 * hidden_dim, scheme=scheme, dtype="float64"
    )
    rng = np.random.default_rng(seed)
    x, direction = rng.standard_normal((2, 3, 7, hidden_dim))
    encoder.build(x.shape)
    return encoder, ops.convert_to_tensor(x, "float64"), direction


def _along(direction: Any, outputs: Any) -> Any:
    return ops.sum(ops.convert_to_tensor(direction, outputs.dtype) * outputs)


def _relative_error(value: np.ndarray, expected: np.ndarray) -> float:
    return float(np.max(np.abs(value - expected)) / np.max(np.abs(expected)))


def _array(tensor: Any) -> np.ndarray:
    return np.asarray(ops.convert_to_numpy(tensor))


def _float64() -> contextlib.AbstractContextManager[Any]:
    """JAX rounds to float32 unless told otherwise; the other backends do what the dtype says."""
    if keras.backend.backend() != "jax":
        return contextlib.nullcontext()
    import jax

    return jax.enable_x64(True)
