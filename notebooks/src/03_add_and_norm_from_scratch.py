# %% [markdown]
# # Add & Norm from scratch
#
# [中文](03_add_and_norm_from_scratch.zh.ipynb)
#
# Figure 1 of "Attention Is All You Need" repeats one small box: **Add & Norm**. It stands twice in
# every encoder layer and three times in every decoder layer, so the original model of 6 + 6 layers
# has 30 of them, one of 12 + 12 has 60. Here we build the box from four lines of NumPy, see what the
# *add* is for, and meet the mistakes that most first implementations have.
#
# > **z = x + F(x)**
# >
# > **y = LN(z) = γ · (z − μ) / √(σ² + ε) + β**
#
# x is the *residual stream*, F a *sublayer* (attention or feed-forward), F(x) the *branch*. μ and
# σ², mean and variance, are taken over the D features of one position; ε is tiny and keeps the root
# from 0; γ and β are learned, have D numbers each, and start at ones and zeros.

# %% include="setup.py"

# %% [markdown]
# ## The box, in NumPy
#
# Two positions of four features each. The norm looks at each row by itself.


# %%
def layer_norm(z, gamma=1.0, beta=0.0, epsilon=1e-6):
    mean = z.mean(axis=-1, keepdims=True)
    variance = z.var(axis=-1, keepdims=True)
    return gamma * (z - mean) / np.sqrt(variance + epsilon) + beta


def add_and_norm(x, f):
    return layer_norm(x + f)


x = np.array([[1.0, 2.0, 3.0, 6.0], [0.0, 0.0, 4.0, 0.0]])
f = np.array([[0.5, -1.0, 0.0, 0.5], [1.0, 1.0, -1.0, 1.0]])
y = add_and_norm(x, f)
print(y.round(3))
print("mean of each row", y.mean(axis=-1).round(6), " variance", y.var(axis=-1).round(4))

# %% [markdown]
# The layer of this library computes the same:

# %%
from keras_addnorm.layers import AddNorm

same = keras.ops.convert_to_numpy(AddNorm()(x.astype("float32"), f.astype("float32")))
print("largest difference:", np.abs(same - y).max())

# %% [markdown]
# ## What F(x) is: a difference
#
# Take the word **bank**. Without context it is as much about money as about rivers. Say that two
# features of its vector mean *finance* and *geography*:

# %%
bank = np.array([0.5, 0.5])  # finance, geography

# "I need to withdraw money from the bank": what attention adds.
change = np.array([0.3, -0.2])
print("H = x + F(x) =", bank + change)

# %% [markdown]
# F(x) is not a new vector for the word. It says **what the context changes**: more finance, less
# geography. In another sentence, the same word gets another F(x), and where context says nothing new,
# F(x) can be zero.

# %%
sentences = {
    "... withdraw money from the bank": (np.array([0.3, -0.2]), (-150, -14)),
    "... fishing on the bank": (np.array([-0.35, 0.3]), (-50, 8)),
    "... the bank, as I said": (np.array([0.02, 0.01]), (8, 6)),
}
figure, axis = plt.subplots(figsize=(5.2, 4))
for number, (sentence, (difference, offset)) in enumerate(sentences.items()):
    arrow = {"width": 0.006, "length_includes_head": True, "color": f"C{number}"}
    axis.arrow(*bank, *difference, **arrow)
    axis.annotate(sentence, bank + difference, xytext=offset, textcoords="offset points")
axis.plot(*bank, "o", color="black", label="bank, without context")
axis.set(xlim=(-0.1, 1.1), ylim=(0, 1.05), xlabel="finance", ylabel="geography")
axis.legend(loc="lower left")
plt.show()

# %% [markdown]
# *What to see: one starting point, one arrow a sentence. The arrows are F(x); where they end is H.*
#
# Four reasons are given for the add: information is kept; gradients have a highway; deeper layers use
# the features of earlier ones again; and training converges faster. The first two can be seen in a
# minute; the other two take real trainings: claim 11 of [Why add](../docs/why_add.md).
#
# ## Why add? The identity is free
#
# A deep network should never be worse than a shallow one: its further layers could do nothing. In
# practice *plain* deep networks are worse **even on their training data**. He et al. called it
# degradation, and built networks of 152 layers once they had added skips (2015).
#
# Without a skip, a layer that should do nothing has to learn W = I and b = 0. With a skip it has to
# learn W = 0, and small weights are where it starts. We let eight layers learn to return their input,
# so that all of them are useless.


# %%
def stack(kind, depth=8, width=16):
    x = inputs = keras.Input((width,))
    for _ in range(depth):
        h = keras.layers.LayerNormalization()(x) if "LN" in kind else x
        f = keras.layers.Dense(width)(keras.layers.Dense(2 * width, activation="relu")(h))
        x = f if kind == "F(x)" else x + f
    return keras.Model(inputs, x)


rng = np.random.default_rng(0)
data = rng.normal(size=(1024, 16)).astype("float32")
curves = {}
for kind in ("F(x)", "x + F(x)", "x + F(LN(x))"):
    keras.utils.set_random_seed(2)
    model = stack(kind)
    model.compile(keras.optimizers.Adam(3e-3), "mse", jit_compile=False)
    curves[kind] = model.fit(data, data, batch_size=64, epochs=10, verbose=0).history["loss"]

figure, axis = plt.subplots(figsize=(7.2, 3.2))
for kind, losses in curves.items():
    axis.semilogy(range(1, len(losses) + 1), losses, marker="o", label=f"y = {kind}")
axis.axhline(1.0, color="black", linestyle=":", label="output of zeros")
axis.set(xlabel="epoch", ylabel="error of copying")
axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
for kind, losses in curves.items():
    print(f"y = {kind:13} error {losses[-1]:.3f}")

# %% [markdown]
# *What to see: useless layers with a skip get out of the way. Without it, eight layers hardly learn
# more than to put out zeros. The skip alone starts far off, because each layer adds its first random
# output; the norm, the other half of the box, mends a part of that.*
#
# It was found in convolutional networks. [deep_cnn.py](../examples/deep_cnn.py) trains such
# networks of 8, 20 and 32 layers, plain and residual, with three seeds each.
#
# ## The highway for gradients
#
# With H = x + F(x), the gradient of the loss has two ways back to x:
#
# > **∂L/∂x = ∂L/∂H · (1 + ∂F/∂x)**
#
# The 1 is the skip. Without it, the gradient has to pass the product of all layers' Jacobians J, the
# matrices ∂F/∂x. Here it goes back through 24 random linear layers, with and without skips:

# %%
depth, width = 24, 32
jacobians = [rng.normal(size=(width, width)) * 0.4 / np.sqrt(width) for _ in range(depth)]


def gradient_sizes(has_skip):
    gradient = rng.normal(size=width)
    sizes = [np.linalg.norm(gradient)]
    for jacobian in reversed(jacobians):
        through_branch = gradient @ jacobian
        gradient = gradient + through_branch if has_skip else through_branch
        sizes.append(np.linalg.norm(gradient))
    return np.array(sizes) / sizes[0]


figure, axis = plt.subplots(figsize=(5.6, 3.2))
axis.semilogy(gradient_sizes(False), marker=".", label="J  (no skip)")
axis.semilogy(gradient_sizes(True), marker=".", label="1 + J  (skip)")
axis.set(xlabel="layers that the gradient has passed", ylabel="its size, 1 at the top")
axis.legend()
plt.show()

# %% [markdown]
# *What to see: without the skip, the gradient falls by the same factor at each layer. With it, the
# gradient arrives; it even grows. That growth is what the norm is for (the next notebook).*
#
# **The layer does not know of the skip.** F gets the gradient ∂L/∂H either way. Let us check the
# formula with numbers: F(x) = tanh(Wx), L = a · H.

# %%
weights, a, point = rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3)


def loss(x):
    return a @ (x + np.tanh(weights @ x))


jacobian = (1 - np.tanh(weights @ point) ** 2)[:, None] * weights
by_formula = a @ (np.eye(3) + jacobian)
step = 1e-6
by_differences = [(loss(point + step * e) - loss(point - step * e)) / (2 * step) for e in np.eye(3)]
print("by formula    ", by_formula.round(6))
print("by differences", np.round(by_differences, 6))

# %% [markdown]
# Three sentences that are often read, and go too far:
#
# - *"The gradient reaches the bottom undiminished, however deep the stack."* The 1 is the whole skip in
#   x + F(x) and in Pre-LN. In LN(x + F(x)) each norm stands on the way, and divides the gradient by the
#   size of the sum.
# - *"Because of the 1 it cannot become zero."* 1 + ∂F/∂x is zero where F takes away what it reads,
#   F(x) = −x. That is unlikely, not impossible.
# - *"∂L/∂F = ∂L/∂x = ∂L/∂H."* The first and the last are equal. ∂L/∂x has the second way, too: the
#   formula above.
#
# ## Why not concatenate?
#
# Concatenation would keep x and F(x) both whole. But the width doubles at each sublayer:
# D, 2D, 4D, ... D·2ᴺ.

# %%
sublayers = 12
print("added:       ", 512)
print("concatenated:", 512 * 2**sublayers)

# %% [markdown]
# And there are two axes to get wrong. A batch of 2 sentences, 3 positions, 4 features:

# %%
x, f = np.zeros((2, 3, 4)), np.ones((2, 3, 4))
print("features:  ", np.concatenate([x, f], axis=-1).shape, "twice as wide, as intended")
print("positions: ", np.concatenate([x, f], axis=1).shape, "six positions of three!")
print("sentences: ", np.concatenate([x, f], axis=0).shape, "four sentences: x and F(x) never meet")
print("added:     ", (x + f).shape)

one, two = np.zeros((3, 4)), np.ones((3, 4))  # two sentences that are to be a batch
print(
    "\na batch is a new axis:", np.stack([one, two]).shape, "not", np.concatenate([one, two]).shape
)

# %% [markdown]
# It is also said that a concatenation gives the gradient no direct way. It does: L reads x itself in
# one half of [x, F(x)], and that half of the gradient arrives as it is. (DenseNet lives on it.)

# %%
a_of_x, a_of_f = rng.normal(size=(2, 3))


def loss_of_both(x):
    return a_of_x @ x + a_of_f @ np.tanh(weights @ x)  # a · [x, F(x)]


by_differences = [
    (loss_of_both(point + step * e) - loss_of_both(point - step * e)) / (2 * step)
    for e in np.eye(3)
]
print("direct + through F", (a_of_x + a_of_f @ jacobian).round(6))
print("by differences    ", np.round(by_differences, 6))

# %% [markdown]
# So the width is the reason, not the gradient.
#
# Concatenation is right where the parts *mean* different things and the width can be paid: DenseNet
# does it on purpose, and so do models that join a picture and a text. A projection back to D after
# each concatenation would cost 2D² weights a sublayer, and adding is that projection with the weights
# fixed at [I I].
#
# ## Is the identity always good? And what if ‖F(x)‖ ≫ ‖x‖?
#
# Two ways to go wrong, one at each end.
#
# - **F(x) ≈ 0 everywhere**: the layer learns nothing, and costs time. [See inside your
#   model](06_see_inside_your_model.ipynb) finds such layers.
# - **‖F(x)‖ ≫ ‖x‖**: x drowns. The skip is there and carries nothing, and the gradients of F's
#   weights are as far off. No norm, large first weights or a large learning rate bring that about; a
#   norm, Glorot's or He's first weights, and a warm-up with decay are the cures.
#
# The cosine between x and y = x + F(x) tells how much of x is left:

# %%
x, f = rng.normal(size=(2, 1000, 64))
print(" ‖F‖/‖x‖   cos(x, y)")
for ratio in (0.01, 0.1, 0.5, 1, 2, 10, 30):
    y = x + ratio * f
    cosine = np.sum(x * y, -1) / (np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1))
    print(f"{ratio:8}   {cosine.mean():.3f}")

# %% [markdown]
# ## Two places for the norm, and three mistakes
#
# | | formula | at the end of the stack |
# |---|---|---|
# | **Post-LN** (the paper of 2017) | y = LN(x + F(x)) | nothing: the stream is normalised already |
# | **Pre-LN** (GPT-2 and most later models) | y = x + F(LN(x)) | **one more norm** |
#
# **Mistake 1: text and code disagree.** Many tutorials explain Post-LN and then write
# `x + dropout(sublayer(norm(x)))`. That is Pre-LN. Compute both, and compare with the library:

# %%
from keras_addnorm.layers import FeedForward

x = keras.random.normal((2, 5, 16), seed=3)
feed_forward = FeedForward(intermediate_dim=32)
feed_forward.build(x.shape)


def as_numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


def post_ln(x):
    return layer_norm(as_numpy(x) + as_numpy(feed_forward(x)))


def pre_ln(x):
    return as_numpy(x) + as_numpy(feed_forward(layer_norm(as_numpy(x))))


for scheme, by_hand in (("post_ln", post_ln), ("pre_ln", pre_ln)):
    box = AddNorm(scheme)
    # The box calls the sublayer on what the scheme lets it read: x, or the norm of x.
    y = as_numpy(box(x, feed_forward))
    print(f"{scheme:8} largest difference {np.abs(y - by_hand(x)).max():.1e}")
print("Post-LN and Pre-LN differ by", np.abs(post_ln(x) - pre_ln(x)).max().round(2))

# %% [markdown]
# **Mistake 2: Pre-LN without its final norm.** Nothing normalises the stream after the last layer,
# so the decoder or the logits read numbers that grow with depth. In this library the norm comes with
# the scheme:

# %%
from keras_addnorm.layers import TransformerEncoder

x = keras.random.normal((4, 10, 32), seed=4)
print("layers   variance of the stream   of the output")
for num_layers in (2, 8):
    encoder = TransformerEncoder(num_layers, num_heads=4, intermediate_dim=64, scheme="pre_ln")
    output = as_numpy(encoder(x))
    stream = x
    for layer in encoder.layers:
        stream = layer(stream)
    print(f"{num_layers:6}   {as_numpy(stream).var():22.2f}   {output.var():13.2f}")

# %% [markdown]
# (Does an original Transformer have "a norm before the final output layer"? That sentence is true
# of Pre-LN stacks and not of the paper's: its last Add & Norm is the last norm.)
#
# **Mistake 3: statistics over the wrong axes.** `x.mean()` over everything, or over the batch, is
# another norm. The next notebook looks at that.
#
# ## Look at the box in a model
#
# `observe` records what each Add & Norm sees. For every sublayer: how large F(x) is beside x, and how
# much of x is left in y.

# %%
from keras_addnorm.diagnostics import observe
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

model = Seq2SeqTransformer(Seq2SeqConfig.preset("micro", scheme="post_ln"))  # 2+2 layers, 100 words
batch = {"source": rng.integers(4, 100, (4, 9)), "target": rng.integers(4, 100, (4, 8))}
with observe(model) as observation:
    model(batch)
print(f"{len(observation)} Add & Norms: 2 in each encoder layer, 3 in each decoder layer\n")
print("sublayer                    ‖F‖/‖x‖   cos(x, y)")
for record in observation:
    x, f, y = map(as_numpy, (record.residual, record.branch, record.merged))
    cosine = np.sum(x * y, -1) / (np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1))
    ratio = np.linalg.norm(f) / np.linalg.norm(x)
    print(f"{record.name:26} {ratio:8.2f}   {cosine.mean():9.2f}")

# %% [markdown]
# ## Exercises
#
# Fill in the cell, run it, and run the check under it.

# %% include="check.py"

# %% [markdown]
# **1.** "We sat on the **bank** of the river." After the attention the word should be
# H = [0.1, 0.9]. What is F(x), if x = [0.5, 0.5]?

# %% exercise=1
branch = None  # an array of two numbers

# %% check=1
check(
    1,
    lambda: branch,
    lambda f: np.allclose(bank + np.asarray(f), [0.1, 0.9]),
    "F(x) is what has to be added to x to get H.",
)

# %% [markdown]
# **2.** Write the sandwich: y = x + LN(F(LN(x))), with `layer_norm` from above. `f` is a function.


# %% exercise=2
def sandwich(x, f):
    return None


# %% check=2
example = rng.normal(size=(3, 8))
check(
    2,
    lambda: sandwich(example, np.tanh),
    lambda y: np.allclose(y, example + layer_norm(np.tanh(layer_norm(example)))),
    "Two norms: one in front of f, one behind it. The skip goes around all three.",
)

# %% [markdown]
# **3.** How many Add & Norms are there in a model of 4 encoder layers and 3 decoder layers?

# %% exercise=3
number_of_boxes = None

# %% check=3
check(
    3,
    lambda: number_of_boxes,
    lambda n: n == 17,
    "Encoder layers have two sublayers, decoder layers three: one Add & Norm around each.",
)

# %% [markdown]
# Where to go on: [Why norm](04_why_norm.ipynb); a page in which six trained models run,
# [Add & Norm by hand](../docs/explain.md); all schemes in
# [Add & Norm: schemes and norms](../docs/add_and_norm.md); and experiments with real trainings in
# [Why add, and why norm](../docs/why_add_and_norm.md).
