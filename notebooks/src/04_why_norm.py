# %% [markdown]
# # Why norm
#
# The second half of Add & Norm. We compute layer norm by hand, meet three formulas that go by one
# name, set it against batch norm, watch a stream grow without it, and train a deep Post-LN stack with
# and without a warm-up.

# %% include="setup.py"

# %% [markdown]
# ## Layer norm, by hand
#
# > **y = γ · (x − μ) / √(σ² + ε) + β**
#
# μ is the mean and σ² the variance of the features of one position; ε is tiny. One position, four
# features:

# %%
x = np.array([1.0, 2.0, 3.0, 6.0])
mean = x.sum() / 4
variance = ((x - mean) ** 2).sum() / 4
y = (x - mean) / np.sqrt(variance + 1e-6)
print("mean", mean, " variance", variance)
print("y", y.round(3), " mean", y.mean().round(6), " variance", y.var().round(4))

# %% [markdown]
# γ and β are learned, D numbers each. They start at ones and zeros, so at first nothing but the
# formula above happens.
#
# ## Three formulas under one name
#
# | name here | formula | where it is found |
# |---|---|---|
# | `inside` | (x − μ) / √(σ² + ε) | the paper (Ba, Kiros and Hinton 2016, arXiv 1607.06450), Keras, torch |
# | `outside` | (x − μ) / (σ + ε) | "which is about the same", say many texts |
# | `unbiased` | (x − μ) / (s + ε), s² divides by D − 1 | The Annotated Transformer's code |
#
# (Some texts cite arXiv 1911.07013 as the paper of layer norm. That one is "Understanding and
# Improving Layer Normalization", of 2019.)


# %%
def inside(x, epsilon=1e-6):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


def outside(x, epsilon=1e-6):
    return (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + epsilon)


def unbiased(x, epsilon=1e-6):
    return (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True, ddof=1) + epsilon)


rng = np.random.default_rng(1)
print("largest difference from `inside`:")
for width in (4, 512):
    rows = rng.normal(size=(1000, width))
    print(
        f"D = {width:3}   outside {np.abs(outside(rows) - inside(rows)).max():.1e}"
        f"   unbiased {np.abs(unbiased(rows) - inside(rows)).max():.1e}"
    )

# %% [markdown]
# The unbiased deviation makes everything smaller by √(1 − 1/D): 13 % at D = 4 and a thousandth at
# D = 512. Weights trained with one formula and loaded into another are off by that.
#
# Where x is nearly constant, σ is nearly 0 and ε decides:

# %%
print("  spread     inside   outside  unbiased   (largest entry of y)")
for spread in (1e-1, 1e-3, 1e-5, 0.0):
    row = 5.0 + spread * np.array([-1.0, 1.0, -1.0, 1.0])
    values = [np.abs(f(row)).max() for f in (inside, outside, unbiased)]
    print(f"{spread:8.0e} {values[0]:10.4f}{values[1]:10.4f}{values[2]:10.4f}")

# %% [markdown]
# A constant row gives zeros in all three. But the *gradient* of σ = √variance at 0 is infinite: code
# with ε outside the root needs a special case, or training ends in NaN. With ε inside, the root is
# never taken at 0. The library has both, `layer_norm` and `std_layer_norm`:

# %%
from keras_addnorm import norms

rows = rng.normal(size=(3, 8)).astype("float32")
for name, by_hand in (("layer_norm", inside), ("std_layer_norm", unbiased)):
    layer = norms.get(name)(epsilon=1e-6)
    difference = np.abs(keras.ops.convert_to_numpy(layer(rows)) - by_hand(rows)).max()
    print(f"{name:15} {difference:.1e} from the formula")

# %% [markdown]
# ## What a norm takes away
#
# "It has no effect on the representation ability", one can read. It has: y does not change when x is
# multiplied by a positive number, or when the same number is added to all its features.

# %%
x = np.random.default_rng(2).normal(size=8)
print("y of 3x + 5 differs from y of x by", f"{np.abs(inside(3 * x + 5) - inside(x)).max():.0e}")

step = 1e-5
jacobian = [(inside(x + step * e) - inside(x - step * e)) / (2 * step) for e in np.eye(8)]
print("singular values of ∂y/∂x:", np.linalg.svd(np.array(jacobian))[1].round(3))

# %% [markdown]
# Two of the D directions are gone: (1, 1, ..., 1), which is the **mean**, and x − μ, which is the
# **length**. Nothing behind the norm can tell rows apart that differ in these alone. Two read-outs, of
# 64 random ReLU features each, try to learn the length of x and its mean, from x, from its norm, and
# from both, as the stream of Pre-LN has them:


# %%
def explained(rows, wanted, seed):
    """The share of the variance that a linear read-out explains on rows that it has not seen."""
    features = np.random.default_rng(seed).normal(size=(rows.shape[-1], 64)) / 4
    seen = np.c_[np.maximum(rows @ features, 0), np.ones(len(rows))]
    half = len(rows) // 2
    weights = np.linalg.lstsq(seen[:half], wanted[:half], rcond=None)[0]
    missed = wanted[half:] - seen[half:] @ weights
    return 1 - missed.var() / wanted[half:].var()


def three_shares(see, wanted):
    """The same for rows of random length and mean, and what is seen of them, with three seeds."""
    found = []
    for seed in (1, 2, 3):
        draw = np.random.default_rng(seed)
        rows = draw.uniform(0.5, 2, (1000, 1)) * draw.normal(size=(1000, 16))
        rows += draw.normal(size=(1000, 1))
        found.append(explained(see(rows), wanted(rows), seed))
    return np.round(found, 2)


print("                        length               mean")
for name, see in {
    "x": lambda rows: rows,
    "LN(x)": inside,
    "x and LN(x)": lambda rows: np.c_[rows, inside(rows)],
}.items():
    shares = [three_shares(see, wanted) for wanted in (lambda r: r.std(-1), lambda r: r.mean(-1))]
    print(f"{name:12} explains ", *shares)

# %% [markdown]
# Behind the norm nothing is left of either (a share below 0 is worse than guessing the mean). What
# that costs depends on the place: in Post-LN it is lost for all that follows; in Pre-LN only the
# sublayer is without it, the stream keeps it. That a row's length is lost is also what the norm is *for*.
#
# ## What γ and β are for
#
# They "restore capacity". Not the two directions: γ and β are the same for every x. And where a matrix
# W stands behind the norm, as in Pre-LN, they add nothing that W and its bias could not do alone:
#
# > **(γ · n + β) W = n (diag(γ) W) + β W**

# %%
draw = np.random.default_rng(3)
rows, kernel, (gamma, beta) = (draw.normal(size=size) for size in ((5, 8), (8, 3), (2, 8)))
separate = (gamma * inside(rows) + beta) @ kernel
folded = inside(rows) @ (gamma[:, None] * kernel) + beta @ kernel
print("difference", np.abs(separate - folded).max())

# %% [markdown]
# So a trained Pre-LN model can do without: multiply them into the matrices behind. In Post-LN no
# matrix stands between the norm and the skip; there γ says how much of the old stream counts beside
# the next F(x). Whether *training* needs them, with three seeds each, is what
# [gamma_and_beta.py](../examples/gamma_and_beta.py) measures.
#
# ## Layer norm against batch norm
#
# A batch of four rows with three features. Layer norm takes mean and variance **along a row**, batch
# norm **down a column**.

# %%
batch = np.array([[1.0, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]])
print("by row:    mean", batch.mean(1), " variance", batch.var(1).round(3))
print("by column: mean", batch.mean(0), " variance", batch.var(0).round(3))
print("\nlayer norm\n", inside(batch).round(3))
print("batch norm\n", inside(batch.T).T.round(3))

# %% [markdown]
# To layer norm all four rows are the same: they differ by a constant, which it takes away. To batch
# norm all three columns are the same.
#
# Count the means. Layer norm has four, one a position; batch norm has three, one a feature. So a sentence
# like "in layer norm each feature has its own mean and variance" describes batch norm. (γ and β are one a
# feature in both, and perhaps that is why they are mixed up. And it is no statistic "of heads": heads
# have been joined when the norm sees them.)
#
# | | layer norm | batch norm |
# |---|---|---|
# | statistics over | the features of one position | all positions of the batch, for each feature |
# | depends on the batch size | no | yes, and badly when it is small |
# | training = inference | yes | no: inference uses moving averages |
# | used in | Transformers, recurrent networks | convolutional networks |
# | unequal lengths | no matter | padding has to be left out; few long sentences make poor statistics |
# | speed | one row, one pass | needs the whole batch; several devices have to talk to each other. Claim 14 of [Why norm](../docs/why_norm.md) has times |
#
# **The mistake of the wrong axis** is easy to see: change one sentence of the batch, and look whether
# another one changes.

# %%
from keras import layers

sentences = rng.normal(size=(2, 5, 8)).astype("float32")
other = sentences.copy()
other[1] += 3 * rng.normal(size=other[1].shape)  # only the second sentence changes
for name, pair in {
    "layer norm": [layers.LayerNormalization()(s) for s in (sentences, other)],
    "batch norm": [layers.BatchNormalization()(s, training=True) for s in (sentences, other)],
    "all features at once": [(s - s.mean()) / s.std() for s in (sentences, other)],
}.items():
    change = np.abs(np.asarray(pair[0][0]) - np.asarray(pair[1][0])).max()
    print(f"{name:21} the first sentence changes by {change:.2f}")

# %% [markdown]
# In a decoder it is worse than noise. While training, a batch norm shows each position the words that
# it has to predict, since they are part of the mean. So the library refuses it there:

# %%
from keras_addnorm.models import Seq2SeqConfig

try:
    Seq2SeqConfig(source_vocabulary_size=9, target_vocabulary_size=9, norm="batch_norm")
except ValueError as error:
    print(error)

# %% [markdown]
# ## Variances add
#
# For independent X and Y, Var(X + Y) = Var(X) + Var(Y): each addition adds variance. Residual streams
# grow. How fast depends on the place of the norm. Twelve layers at their first weights:

# %%
from keras_addnorm.diagnostics import observe
from keras_addnorm.layers import TransformerEncoder

stream = keras.random.normal((8, 16, 32), seed=1)


def as_numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


records = {}
for scheme in ("no_norm", "post_ln", "pre_ln", "deep_norm"):
    keras.utils.set_random_seed(1)
    encoder = TransformerEncoder(12, num_heads=4, intermediate_dim=64, scheme=scheme)
    encoder.build(stream.shape)
    with observe(encoder) as observation:
        encoder(stream)
    records[scheme] = list(observation)

figure, axis = plt.subplots(figsize=(5.8, 3.4))
for scheme, found in records.items():
    variances = [as_numpy(record.merged).var() for record in found]
    axis.semilogy(variances, ":." if scheme == "deep_norm" else ".-", label=scheme)
axis.set(xlabel="sublayer, in order", ylabel="Var(y)", ylim=(0.3, 1e4))
axis.legend()
plt.show()

# %% [markdown]
# *What to see: without a norm the variance grows by a factor with each sublayer (a straight line on
# this scale); in Pre-LN it grows by about the same amount each time; Post-LN and DeepNorm put it back
# to 1.*
#
# But F(x) is computed **from** x, so X and Y are not independent. The exact formula has a third term,
# Var(x + F) = Var(x) + Var(F) + 2 Cov(x, F). Measure it:

# %%
print("pre_ln                   Var(x)  Var(F)  2 Cov   Var(x + F)")
for record in records["pre_ln"][:6]:
    x, f = as_numpy(record.residual).ravel(), as_numpy(record.branch).ravel()
    covariance = ((x - x.mean()) * (f - f.mean())).mean()
    print(
        f"{record.name:24} {x.var():6.2f} {f.var():7.2f} {2 * covariance:7.2f} {(x + f).var():11.2f}"
    )

# %% [markdown]
# At random first weights the third term is small. Training makes it large where a layer learns to
# take something away. (ReLU and GELU add to this: they move the mean away from 0. How far it gets
# with depth, and what a norm does about it, is claim 10 of [Why norm](../docs/why_norm.md).)
#
# ## What does the norm do for training?
#
# - "Activations have mean 0 and variance 1": only until γ and β have been learned.
# - Numbers of one size before every sublayer, or after it, allow higher learning rates and make less
#   depend on the first weights.
# - The paper of batch norm called its reason "internal covariate shift". That explanation is
#   disputed: Santurkar et al. (2018) added such shifts on purpose, and training went as well. What the
#   norm does, they say, is to make the loss smoother. Claim 9 of [Why norm](../docs/why_norm.md)
#   measures that by their measure.
# - "It regularises": is the loss of sentences not seen lower at the same training loss? It is claim 12
#   there.
# - Where it stands decides whether one needs a **warm-up**: a learning rate that starts near 0 and
#   rises over the first steps. Post-LN's gradients are large near the output at first (Xiong et al.,
#   2020).
#
# Try it. Twelve sublayers, six layers of an encoder, learn to turn rows of six digits around.

# %%
from keras_addnorm.layers import PositionalEmbedding

LENGTH, DIGITS, STEPS = 6, 10, 120


def deep_model(scheme):
    keras.utils.set_random_seed(1)
    ids = keras.Input((LENGTH,), dtype="int32")
    x = PositionalEmbedding(DIGITS, 32, mask_zero=False)(ids)
    x = TransformerEncoder(6, num_heads=4, intermediate_dim=64, scheme=scheme)(x)
    return keras.Model(ids, keras.layers.Dense(DIGITS)(x))


def rates(peak, warmup):
    return [peak * min(1.0, (step + 1) / max(1, warmup)) for step in range(STEPS)]


def train(model, first_weights, peak, warmup):
    model.set_weights(first_weights)
    for variable in model.optimizer.variables:
        variable.assign(np.zeros(variable.shape, variable.dtype))
    digits = np.random.default_rng(2).integers(0, DIGITS, (STEPS, 32, LENGTH))
    losses = []
    for rate, rows in zip(rates(peak, warmup), digits, strict=True):
        model.optimizer.learning_rate.assign(rate)
        losses.append(float(model.train_on_batch(rows, rows[:, ::-1])))
    return np.array(losses)


curves = {}
for scheme in ("post_ln", "pre_ln"):
    model = deep_model(scheme)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(beta_2=0.98), loss, jit_compile=False)
    first_weights = model.get_weights()
    for warmup in (0, 60):
        curves[scheme, warmup] = train(model, first_weights, 0.01, warmup)

figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.2), sharey=True)
for axis, scheme in zip(axes, ("post_ln", "pre_ln"), strict=True):
    for warmup in (0, 60):
        smooth = np.convolve(curves[scheme, warmup], np.ones(10) / 10, "valid")
        axis.plot(smooth, label=f"warm-up {warmup} steps")
    axis.axhline(np.log(DIGITS), color="black", linestyle=":", label="guessing")
    axis.set(title=scheme, xlabel="step", ylim=(0, 2.8))
    axis.legend()
axes[0].set_ylabel("loss")
plt.show()
for (scheme, warmup), losses in curves.items():
    print(f"{scheme:8} warm-up {warmup:3}: loss at the end {losses[-20:].mean():.2f}")

# %% [markdown]
# *What to see: at full rate from the first step, deep Post-LN stays near guessing; with a warm-up it
# begins to learn. Pre-LN does not need one.*
#
# This holds at a useful learning rate. A small one trains Post-LN without a warm-up, too, and takes
# longer. `keras_addnorm.diagnostics.predict_stability(config)` tells before a training what to
# expect at a rate, for any depth and scheme.

# %% [markdown]
# ## Exercises

# %% include="check.py"

# %% [markdown]
# **1.** Write RMSNorm, layer norm without the mean: x / √(mean(x²) + ε).


# %% exercise=1
def rms_norm(x, epsilon=1e-6):
    return None


# %% check=1
check(
    1,
    lambda: rms_norm(batch),
    lambda y: np.allclose(y, np.asarray(norms.get("rms_norm")(epsilon=1e-6)(batch)), atol=1e-5),
    "The mean goes over the last axis, and keeps it: keepdims=True.",
)

# %% [markdown]
# **2.** A branch has variance 1 and is independent of the stream, which starts with variance 1. What is
# the variance of the stream after 20 sublayers of Pre-LN?

# %% exercise=2
variance_behind = None

# %% check=2
check(
    2,
    lambda: variance_behind,
    lambda v: abs(v - 21) < 1e-6,
    "In Pre-LN the branch reads a normalised stream, so it always adds the same variance.",
)

# %% [markdown]
# **3.** Write the learning rate of the original paper, with d the width of the model:
# rate(step) = d⁻⁰·⁵ · min(step⁻⁰·⁵, step · warmup⁻¹·⁵).


# %% exercise=3
def noam_rate(step, width, warmup):
    return None


# %% check=3
check(
    3,
    lambda: [noam_rate(step, 512, 4000) for step in (1, 4000, 16000)],
    lambda r: np.allclose(r, [1.7469e-7, 6.9877e-4, 3.4939e-4], rtol=1e-3),
    "It rises linearly until step = warmup, and then falls with the root of the step.",
)

# %% [markdown]
# Where to go on: a page in which six trained models run, with and without the norm,
# [Add & Norm by hand](../docs/explain.md); [See inside your model](06_see_inside_your_model.ipynb),
# the [norms and schemes of the library](../docs/add_and_norm.md), and
# [which of them trains](../docs/stability.md).
