"""What `docs/add_and_norm.md` says that schemes cost beside Pre-LN is what a program has."""

import json
from pathlib import Path

import pytest
from new_process import run_on

HERE = Path(__file__).parent
D, LAYER, n = 64, 3, 4  # The width that weights are counted at, a layer of two sublayers, streams.
NORM = 4.5  # multiply-adds a channel: a mean, a difference, squares, a mean, a gain, an offset
SOURCES = 2 * LAYER - 0.5  # on average, in front of the layer's two sublayers

# Scheme, multiply-adds a channel in one layer, and weights in one layer.
COSTS = {
    "keel": ("keel", 2 * (1 + NORM), 2 * 2 * D),
    "gpas": ("gpas", 2 * 1, 2 * 1),
    "orthogonal": ("orthogonal", 2 * 3, 0),
    "deep_delta": ("deep_delta", 2 * 7, 2 * (2 * D + 1)),
    "hybrid_norm": ("hybrid_norm", 2 * NORM, 3 * 2 * D - 2 * D),
    "b2t": ("b2t", 1, 0),
    "residual_scalars": ("residual_scalars", 2, 2),
    "dense_former": ("dense_former", LAYER + 1, LAYER + 1),
    "dlcl": ("dlcl", LAYER + 1 + NORM, LAYER + 1 + 2 * D),
    "siamese_norm": ("siamese_norm", 2 * (2 * NORM + 2), 2 * 2 * 2 * D),
    "attention_residuals": ("attention_residuals", 2 * (2 * SOURCES + 3), 2 * D),
    "resi_dual": ("resi_dual", 2 * 1, 0),
    "hyper_connections, static": (
        {"name": "hyper_connections", "num_streams": n, "dynamic": False},
        2 * n * (n + 2),
        2 * n * (n + 2),
    ),
    "hyper_connections": (
        {"name": "hyper_connections", "num_streams": n},
        2 * (2 * n * (n + 2) + 3 * n),
        2 * (n * (n + 2) + D * (n + 2) + 2),
    ),
    "frac_connections": (
        {"name": "frac_connections", "num_streams": n},
        2 * (2 * n + 1),
        2 * n * (2 * n + 1),
    ),
    "frac_connections, dynamic": (
        {"name": "frac_connections", "num_streams": n, "dynamic": True},
        2 * (2 * (2 * n + 1) + 3),
        2 * (n * (2 * n + 1) + (2 * n + 1) * D // n + 2),
    ),
    "mhc": (
        {"name": "mhc", "num_streams": n},
        2 * (n * (n + 2) + n * (n**2 + 2 * n) + 1.5 * n),
        2 * (n * D * (n**2 + 2 * n) + n**2 + 2 * n + 3),
    ),
    "mhc_lite": (
        {"name": "mhc_lite", "num_streams": n},
        2 * (n * (n + 2) + n * (24 + 2 * n) + 1.5 * n),
        2 * (n * D * (24 + 2 * n) + 24 + 2 * n + 3),
    ),
    "krom_hc": (
        {"name": "krom_hc", "num_streams": n},
        2 * (n * (n + 2) + n * (4 + 2 * n) + 1.5 * n),
        2 * (n * D * (4 + 2 * n) + 4 + 2 * n + 3),
    ),
}


@pytest.fixture(scope="module")
def counted():
    """What JAX's programs have, by case."""
    cases = json.dumps({case: scheme for case, (scheme, _, _) in COSTS.items()})
    return json.loads(run_on("jax", "-W", "ignore", HERE / "costs_on_jax.py", cases))


@pytest.mark.slow
@pytest.mark.parametrize("case", COSTS)
def test_a_layer_has_the_arithmetic_and_the_weights_of_the_table(counted, case):
    _, multiply_adds, weights = COSTS[case]
    assert counted[case]["weights"] == weights
    # A multiplication or an addition alone is a multiply-add, too: at most all of them are.
    operations = counted[case]["operations a channel"]
    assert operations / 2 <= multiply_adds <= operations / 2 + 2
