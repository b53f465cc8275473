"""A model of Marian in NumPy, one line a step, in float64 or with the engine's eight-bit products.

Written from the papers (Vaswani et al. 2017; Kim et al. 2019, SSRU; Zhang et al. 2018, average
attention); it knows nothing of keras_addnorm.
"""

import dataclasses

import numpy as np


def tensors_of(path):
    """The matrices and vectors of an `.npz` of Marian or ours, without its settings."""
    with np.load(path) as arrays:
        return {name: array for name, array in arrays.items() if not name.startswith("special:")}


@dataclasses.dataclass
class Formula:
    """The model of a file of Marian.

    Args:
        tensors: Float matrices by Marian's names.
        heads: Number of heads.
        integers: For matrices of eight bits: whole numbers with their multipliers; then products
            are those of whole numbers.
        inner: Width of average attention's feed-forward activation, if it has one.
    """

    tensors: dict
    heads: int
    integers: dict = dataclasses.field(default_factory=dict)
    dtype: str = "float64"
    largest: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self.tensors = {name: each.astype(self.dtype) for name, each in self.tensors.items()}

    def affine(self, x, kernel, bias=None, quant=None):
        self.largest.setdefault(quant or kernel, []).append(np.abs(x).max())
        offset = 0 if bias is None else self.tensors[bias][0]
        if kernel not in self.integers:
            y = x @ (self.tensors[kernel].T if quant else self.tensors[kernel])
            return y + offset
        whole, multiplier = self.integers[kernel]
        factor = self.tensors[f"{quant or kernel}_QuantMultA"].item()
        rows = np.clip(np.rint(x * factor), -127, 127).reshape(-1, x.shape[-1])
        product = shifted_product(rows, whole.T if quant else whole)
        product = product.reshape(*x.shape[:-1], -1) / (factor * multiplier)
        return (product + offset).astype(self.dtype)

    def norm(self, x, name):
        center, spread = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        scale, bias = self.tensors[f"{name}_scale"][0], self.tensors[f"{name}_bias"][0]
        return (x - center) / np.sqrt(spread + 1e-9) * scale + bias

    def attention(self, x, memory, name, mask):
        def split(y):
            return y.reshape(*y.shape[:-1], self.heads, -1).swapaxes(-2, -3)

        q, k, v = (
            split(self.affine(y, f"{name}_W{part}", f"{name}_b{part}"))
            for part, y in (("q", x), ("k", memory), ("v", memory))
        )
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + np.where(mask, 0, -1e9)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        y = (weights @ v).swapaxes(-2, -3).reshape(x.shape)
        return self.norm(x + self.affine(y, f"{name}_Wo", f"{name}_bo"), f"{name}_Wo_ln")

    def feed_forward(self, x, name):
        y = np.maximum(self.affine(x, f"{name}_W1", f"{name}_b1"), 0)
        return self.norm(x + self.affine(y, f"{name}_W2", f"{name}_b2"), f"{name}_ffn_ln")

    def ssru(self, x, name):
        forget = sigmoid(self.affine(x, f"{name}_Wf", f"{name}_bf"))
        new = self.affine(x, f"{name}_W")
        cell, outputs = np.zeros_like(x[:, 0]), []
        for step in range(x.shape[1]):
            cell = forget[:, step] * cell + (1 - forget[:, step]) * new[:, step]
            outputs.append(np.maximum(cell, 0))
        return self.norm(x + np.stack(outputs, 1), f"{name}_ffn_ln")

    def average_attention(self, x, name):
        y = np.cumsum(x, 1) / np.arange(1, x.shape[1] + 1)[:, None]
        y = self.affine(y, f"{name}_W1", f"{name}_b1")
        y = self.affine(y * sigmoid(y), f"{name}_W2", f"{name}_b2")
        kept = sigmoid(self.affine(x, f"{name}_Wi", f"{name}_bi")) * x
        taken = sigmoid(self.affine(y, f"{name}_Wf", f"{name}_bf")) * y
        return self.norm(x + kept + taken, f"{name}_ffn_ln")

    def embed(self, ids):
        table = self.tensors["Wemb"]
        x = table[ids] * np.sqrt(table.shape[1])
        return x

    def placed(self, x):
        half = x.shape[-1] // 2
        rates = np.exp(-np.log(10000) * np.arange(half) / (half - 1))
        angles = np.arange(x.shape[1])[:, None] * rates
        return (x + np.concatenate([np.sin(angles), np.cos(angles)], -1)).astype(self.dtype)

    def count(self, side):
        return sum(name.startswith(side) and name.endswith("_ffn_W1") for name in self.tensors)

    def encode(self, source, mask):
        x = self.placed(self.embed(source))
        for layer in range(1, self.count("encoder") + 1):
            x = self.attention(x, x, f"encoder_l{layer}_self", mask[:, None, None])
            x = self.feed_forward(x, f"encoder_l{layer}_ffn")
        return x

    def decode(self, memory, mask, target):
        """Logits `(B, T + 1, V)` after each prefix of `target`, `(B, T)`."""
        x = self.embed(target)
        x = self.placed(np.concatenate([np.zeros_like(memory[:, :1]), x], 1))
        for layer in range(1, self.count("decoder") + 1):
            name = f"decoder_l{layer}"
            if f"{name}_rnn_W" in self.tensors:
                x = self.ssru(x, f"{name}_rnn")
            elif f"{name}_aan_W1" in self.tensors:
                x = self.average_attention(x, f"{name}_aan")
            else:
                causal = np.tril(np.ones((x.shape[1], x.shape[1]), bool))
                x = self.attention(x, x, f"{name}_self", causal)
            x = self.attention(x, memory, f"{name}_context", mask[:, None, None])
            x = self.feed_forward(x, f"{name}_ffn")
        return self.affine(x, "Wemb", "decoder_ff_logit_out_b", "none")

    def log_probabilities(self, source, target):
        """Log-probabilities of a target `(T,)` and its end after a source `(S,)`, both lists."""
        source, mask = np.array([[*source, 0]]), np.ones((1, len(source) + 1), bool)
        logits = self.decode(self.encode(source, mask), mask, np.array([target], int))[0]
        return log_softmax(logits)[range(len(target) + 1), [*target, 0]]

    def greedy(self, sources, longest):
        """The tokens that are found one by one, without the end; `<unk>` is never taken.

        `longest` is the number of tokens at most, for each source.
        """
        width = max(map(len, sources)) + 1
        ids = np.array([[*source, *[0] * (width - len(source))] for source in sources])
        mask = np.arange(width) <= np.array([[len(source)] for source in sources])
        memory, found = self.encode(ids, mask), np.zeros((len(sources), 0), int)
        is_open, lengths = np.ones(len(sources), bool), np.array(longest)
        while is_open.any():
            rows = np.flatnonzero(is_open)
            logits = self.decode(memory[rows], mask[rows], found[rows])[:, -1]
            logits[:, 1] = -np.inf
            tokens = np.zeros(len(sources), int)
            tokens[rows] = logits.argmax(-1)
            found = np.concatenate([found, tokens[:, None]], 1)
            is_open &= (tokens != 0) & (found.shape[1] < lengths)
        return [[token for token in row if token] for row in found.tolist()]


def shifted_product(rows, whole):
    """`rows @ whole` as processors with 16-bit sums of two products have it.

    The engine makes activations positive by adding 127, multiplies two neighbours each and cuts
    their sum off at 16 bits; at the end it takes 127 times the column's sum off again.
    """
    shifted, whole = (rows + 127).astype("int32"), whole.astype("int32")
    sums = np.empty((len(rows), whole.shape[1]), "int64")
    for start in range(0, len(rows), 128):
        some = shifted[start : start + 128]
        pairs = some[:, 0::2, None] * whole[0::2] + some[:, 1::2, None] * whole[1::2]
        sums[start : start + 128] = np.clip(pairs, -32768, 32767).sum(1)
    return (sums - 127 * whole.sum(0)).astype("float64")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def log_softmax(logits):
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))
