"""Counts what one more layer of each case costs: arithmetic, by JAX's program, and weights.

Run as a program by `test_costs.py`: the cases as JSON in, what they cost as JSON out.
"""

import json
import math
import sys

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from keras_addnorm.layers import TransformerEncoder

MOVING = {  # What moves or makes numbers, and computes none.
    "broadcast_in_dim",
    "concatenate",
    "convert_element_type",
    "copy",
    "dynamic_slice",
    "expand_dims",
    "gather",
    "iota",
    "pad",
    "reshape",
    "select_n",
    "slice",
    "split",
    "squeeze",
    "stack",
    "stop_gradient",
    "transpose",
}


class Count:
    """The operations of a program; what is computed twice from the same counts once, as in XLA."""

    def __init__(self):
        self.total = 0
        self._known = {}

    def run(self, jaxpr, constants, arguments):
        """Count a program, and return what its outputs are."""
        named = dict(zip(jaxpr.constvars, [_constant(c) for c in constants], strict=True))
        named |= dict(zip(jaxpr.invars, arguments, strict=True))

        def read(value):
            is_literal = isinstance(value, Literal)
            return (str(value.val), str(value.aval)) if is_literal else named[value]

        for equation in jaxpr.eqns:
            inputs = tuple(read(value) for value in equation.invars)
            inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
            if inner is not None:
                inner = inner if hasattr(inner, "jaxpr") else ClosedJaxpr(inner, ())
                outputs = self.run(inner.jaxpr, inner.consts, inputs)
            else:
                how = sorted((name, str(value)) for name, value in equation.params.items())
                key = (equation.primitive.name, str(how), inputs)
                if key not in self._known:
                    self._known[key] = len(self._known)
                    self.total += _operations(equation)
                outputs = [(self._known[key], index) for index in range(len(equation.outvars))]
            named |= dict(zip(equation.outvars, outputs, strict=True))
        return [read(value) for value in jaxpr.outvars]


def _constant(value):
    return np.asarray(value).tobytes()


def _operations(equation):
    name, result = equation.primitive.name, equation.outvars[0].aval
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        length = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
        return 2 * length * result.size
    if name.startswith("reduce_"):
        return equation.invars[0].aval.size
    return 0 if name in MOVING else result.size


def cost(scheme, layers, width):
    """Return the operations for one position, and the number of weights."""
    stack = TransformerEncoder(layers, num_heads=1, intermediate_dim=8, scheme=scheme)
    x = np.zeros((1, 1, width), "float32")
    stack.build(x.shape)
    weights = [v.value for v in stack.trainable_variables]  # there are no others

    def run(weights, x):
        return stack.stateless_call(weights, [], x)[0]

    program = jax.make_jaxpr(run)(weights, x)
    count = Count()
    # The weights are arguments: those that start alike are two, while equal constants are one.
    count.run(program.jaxpr, program.consts, range(len(program.jaxpr.invars)))
    return np.array([count.total, stack.count_params()])


def layer(scheme, index, width):
    """Return what the last of `index` layers costs."""
    return cost(scheme, index, width) - cost(scheme, index - 1, width)


if __name__ == "__main__":
    wide, narrow, index = 128, 64, 3
    pre_ln = {width: layer("pre_ln", index, width) for width in (wide, narrow)}
    found = {}
    for case, scheme in json.loads(sys.argv[1]).items():
        at_wide, at_narrow = (layer(scheme, index, w) - pre_ln[w] for w in (wide, narrow))
        operations, _ = (at_wide - at_narrow) / (wide - narrow)
        found[case] = {"operations a channel": operations, "weights": float(at_narrow[1])}
    print(json.dumps(found))
