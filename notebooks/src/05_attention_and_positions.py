# %% [markdown]
# # Attention and positions by hand
#
# Attention in three lines, then with queries, keys and values; why it divides by √K; masks and the
# numbers that break them; heads; and two ways to say where a word stands.

# %% include="setup.py"

# %% [markdown]
# ## Attention without a single weight
#
# Three words, each a vector of six numbers. How much word i listens to word j is the softmax of
# their dot product; what it hears is the weighted sum:
#
# > **aᵢⱼ = softmaxⱼ(xᵢ · xⱼ)**
# >
# > **Aᵢ = Σⱼ aᵢⱼ xⱼ**

# %%
words = ["I", "love", "cats"]
ids = [9, 27, 301]  # what a vocabulary says
vectors = np.array(
    [
        [0.1, 0.3, 0.9, -0.4, 0.5, 0.8],
        [-0.3, 0.8, -0.6, 0.1, 0.7, -0.8],
        [0.6, -0.2, 0.7, 0.4, -0.5, 0.3],
    ]
)


def softmax(logits):
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


weights = softmax(vectors @ vectors.T)
for word, row in zip(words, weights, strict=True):
    print(f"{word:5} listens to", dict(zip(words, row.round(2).tolist(), strict=True)))
heard = weights @ vectors
print("\nwhat each word hears, a mixture of all three:\n", heard.round(2))

# %% [markdown]
# Each word listens most to itself, because a vector's product with itself is large. To let a word
# *ask* for something else than what it *is*, give it three roles with a learned matrix each: a
# **query** (what I look for), a **key** (what I am found by), a **value** (what I say).
#
# > **softmax(Q Kᵀ / √K) V**
#
# Q, K and V are matrices with the queries, keys and values of all words as rows; under the root, K is
# the number of entries of one key. (Papers write d or dₖ there.)

# %%
rng = np.random.default_rng(3)
width = 6
to_query, to_key, to_value = rng.normal(size=(3, width, width)) / np.sqrt(width)


def attention(queries, keys, values, mask=None):
    logits = queries @ np.swapaxes(keys, -1, -2) / np.sqrt(keys.shape[-1])
    if mask is not None:
        logits = np.where(mask, logits, -np.inf)
    weights = softmax(logits)
    return weights @ values, weights


output, weights = attention(vectors @ to_query, vectors @ to_key, vectors @ to_value)
print(weights.round(2))

# %% [markdown]
# The layer of this library computes that in each head, with biases and an output projection. Give it
# our three matrices:

# %%
from keras_addnorm.layers import MultiHeadSelfAttention

layer = MultiHeadSelfAttention(num_heads=1, use_bias=False)
layer.build((1, 3, width))
layer.set_weights([to_query, to_key, to_value, np.eye(width)])
theirs, their_weights = layer(vectors[None].astype("float32"), return_attention_scores=True)
print("difference", np.abs(np.asarray(theirs[0]) - output).max())

# %% [markdown]
# ## Why divide by √K?
#
# If the entries of u and v are independent with mean 0 and variance 1, then E[u · v] = 0 and
# **Var(u · v) = K**, K the number of entries. So the standard deviation of a dot product is √K. (It is
# not its expected value, as one can read: that is 0.) One can also read that the paper does not say so. It
# does, in a footnote to the formula, with these assumptions.

# %%
print("  K   variance of u·v   after / √K   after / K")
for size in (4, 16, 64, 256):
    u, v = rng.normal(size=(2, 20_000, size))
    products = (u * v).sum(-1)
    print(
        f"{size:4} {products.var():16.1f} {(products / size**0.5).var():12.2f}"
        f" {(products / size).var():11.4f}"
    )

# %% [markdown]
# Dividing by √K brings the variance to 1 at any width. Not dividing leaves large logits, and the
# softmax puts everything on one key; then its gradient is nearly zero. Dividing by K over-corrects:
# all keys get nearly the same weight.

# %%
size, keys = 64, 10
query, many_keys = rng.normal(size=size), rng.normal(size=(keys, size))
logits = many_keys @ query
figure, axes = plt.subplots(1, 3, figsize=(8.4, 2.5), sharey=True)
for axis, (label, divisor) in zip(
    axes, {"q·k": 1, "q·k / √K": size**0.5, "q·k / K": size}.items(), strict=True
):
    axis.bar(range(keys), softmax(logits / divisor))
    axis.set(title=label, xlabel="key", ylim=(0, 1))
axes[0].set_ylabel("weight")
plt.show()

# %% [markdown]
# *What to see: the same ten keys three times. Left, one key takes nearly all; in the middle there are
# preferences; right, hardly any are left.*
#
# ## Masks
#
# A decoder must not look ahead. "The cat sat on the mat": when **sat** is predicted, only "The cat" is
# visible. So position t may attend to positions up to t, a lower triangle:

# %%
sentence = ["The", "cat", "sat", "on", "the", "mat"]
visible = np.tril(np.ones((6, 6), bool))
embedded = rng.normal(size=(6, width))
_, causal = attention(embedded @ to_query, embedded @ to_key, embedded @ to_value, visible)

figure, axis = plt.subplots(figsize=(4.4, 3.8))
axis.imshow(np.where(visible, causal, np.nan), cmap="Blues", vmin=0, vmax=1)
axis.set_facecolor("#dddddd")
axis.set_xticks(range(6), sentence)
axis.set_yticks(
    range(6),
    [f"{word} → {after}" for word, after in zip(sentence, [*sentence[1:], "."], strict=True)],
)
axis.grid(visible=False)
axis.set(xlabel="looks at", ylabel="reads → predicts")
plt.show()

# %% [markdown]
# *What to see: what is grey is hidden, all that is above the diagonal. In the second row the decoder has read "The cat" and
# predicts "sat".*
#
# **The mistake of −1e9.** Much code adds −1e9 to hidden logits. In float16 the smallest number is
# −65,504, so −1e9 is −∞. That is harmless until a row is hidden *entirely*, padding for instance:

# %%
with np.errstate(all="ignore"):
    print("-1e9 in float16:", np.float16(-1e9))
    hidden_row = np.zeros(4, np.float16) + np.float16(-1e9)
    print("softmax of a row that is hidden:", softmax(hidden_row))

# %% [markdown]
# NaN, and from there into every weight. And with a finite large number the row is not hidden at all:
# all its keys get the same weight. Attention in this library gives zeros where there is nothing to
# attend to, in every precision:

# %%
half = MultiHeadSelfAttention(num_heads=2, use_bias=False, dtype="mixed_float16")
padding = np.array([[True, True, False, False], [False, False, False, False]])
x = rng.normal(size=(2, 4, 8)).astype("float32")
output, scores = half(x, padding_mask=padding, return_attention_scores=True)
print("weights of the first sentence's first word: ", np.asarray(scores[0, 0, 0]).round(2))
print("weights of the second sentence's first word:", np.asarray(scores[1, 0, 0]).round(2))
print("any NaN:", bool(np.isnan(np.asarray(output, "float32")).any()))

# %% [markdown]
# ## Heads
#
# A width of D = 512 is not one attention but 8 heads of 64. They cost what one head of 512 costs, and
# each has a softmax of its own, so that one word can look at several places at once.

# %%
x = rng.normal(size=(1, 5, 512))
heads = x.reshape(1, 5, 8, 64).swapaxes(1, 2)  # (B, T, D) -> (B, T, H, K) -> (B, H, T, K)
print(x.shape, "->", heads.shape)

# %% [markdown]
# In trained models some heads look at the word before or after, some at the same word, some at the end
# of the sentence, and many at nothing in particular. `print(inspect(model, batch))` has a table of
# them, and so has its [page](../docs/diagnostics.md); [brackets.py](../examples/brackets.py) looks for a
# head that matches brackets, and has a probe. Nothing *makes* heads learn different things: Li
# et al. (2018) called their difference *disagreement* and added it to the loss. Here
# `AttentionConfig(head_diversity={"outputs": 0.1})` does that. In fresh models heads differ by chance; see what one does:

# %%
from keras_addnorm.diagnostics import head_diversity
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer

model = Seq2SeqTransformer(Seq2SeqConfig.preset("micro", scheme="post_ln"))
source, target = rng.integers(4, 100, (4, 8)), rng.integers(4, 100, (4, 7))
print("1 minus agreement        values  places  outputs")
for found in head_diversity(model, source, target):
    print(f"{found.name:24} {found.subspaces:6.2f} {found.positions:7.2f} {found.outputs:8.2f}")

# %% [markdown]
# **Weights are not explanations.** They say what was *read*, not what was *used*. If two keys have the
# same value, weights can move from one to the other and nothing changes:

# %%
values = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
for weights in ([0.8, 0.1, 0.1], [0.1, 0.8, 0.1]):
    print(weights, "->", np.array(weights) @ values)

# %% [markdown]
# ## Where a word stands: sine tables
#
# Attention is a sum: it does not know in which order the words came. The paper adds a table of sines
# and cosines to the embeddings:
#
# > **PE(pos, 2i) = sin(pos · ωᵢ)**
# >
# > **PE(pos, 2i + 1) = cos(pos · ωᵢ)**
#
# pos is the place of the word, counted from 0, and ωᵢ = 1 / 10000^(2i / D) the frequency of the i-th
# pair of features.


# %%
def sine_table(length, width):
    position = np.arange(length)[:, None]
    frequency = 10000.0 ** (-np.arange(0, width, 2) / width)
    table = np.zeros((length, width))
    table[:, 0::2] = np.sin(position * frequency)
    table[:, 1::2] = np.cos(position * frequency)
    return table


print("frequencies for D = 6:", (10000.0 ** (-np.arange(0, 6, 2) / 6)).round(4))
print("\nword   id  vector                                  + position                        = x")
for word, number, vector, place in zip(words, ids, vectors, sine_table(3, 6), strict=True):
    print(f"{word:5} {number:3}  {vector}  {place.round(2)}  {(vector + place).round(2)}")

# %% [markdown]
# This very example is on the web with [0.84, 0.54, 0.15, 0.99, 0.01, 1.0] for position 1. Four of the six
# numbers are the formula's: the third and the fifth are sin(1 / 10000^(2/6)) = 0.046 and
# sin(1 / 10000^(4/6)) = 0.002. And its first word has position 1; here, as in the paper's code and ours,
# positions are counted from 0.

# %%
print("position 1, D = 6:", sine_table(2, 6)[1].round(3))

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.2))
axes[0].imshow(sine_table(50, 64), cmap="RdBu", aspect="auto")
axes[0].set(title="50 positions, D = 64", xlabel="channel", ylabel="position")
axes[0].grid(visible=False)
table = sine_table(100, 64)
axes[1].plot(table @ table[50])
axes[1].set(title="product of position 50 with all others", xlabel="position")
plt.show()

# %% [markdown]
# *What to see: left, fast waves in the first channels and slow ones in the last. Right, near
# positions are alike and far ones are not: the dot product depends on the distance alone.*
#
# The library's table is the same:

# %%
from keras_addnorm.layers import PositionalEmbedding

embedding = PositionalEmbedding(vocabulary_size=40, hidden_dim=64)
rows = np.full((1, 20), 7)
without_words = embedding(rows)[0] - 8 * embedding.table()[7]
print("difference", np.abs(np.asarray(without_words) - sine_table(20, 64)).max())

# %% [markdown]
# **The mistake of embeddings that are not scaled.** (The 8 above is √64.) Embeddings start with a
# standard deviation of 1/√D, so a row has the length 1. A row of the sine table has the length √(D/2).
# Without the factor √D the word drowns in its position:

# %%
print("   D   length of a word   √D · word   position")
for size in (64, 512):
    word = rng.normal(size=size) / size**0.5
    lengths = [np.linalg.norm(word), np.linalg.norm(word) * size**0.5]
    print(
        f"{size:4} {lengths[0]:14.1f} {lengths[1]:14.1f} {np.linalg.norm(sine_table(9, size)[5]):10.1f}"
    )

# %% [markdown]
# ## Where a word stands: relative positions
#
# What matters more often is how *far* two words are apart. For a sentence of 3 words there are 5
# distances, of which a word in the middle sees −1, 0 and 1; for 10 words there are 19. Shaw et al.
# (2018) learn a vector for each, and clip at a maximum, so that long sentences need no more:


# %%
def distances(length, maximum=None):
    found = np.arange(length)[None, :] - np.arange(length)[:, None]
    return found if maximum is None else found.clip(-maximum, maximum)


print("from the middle of 3 words:", distances(3)[1])
print(
    "of 10 words:",
    len(np.unique(distances(10))),
    "distances; clipped at 4:",
    len(np.unique(distances(10, 4))),
)
print(distances(6, 2))

# %% [markdown]
# (Adding these without a large intermediate tensor takes a trick called *skewing*. It is from Music
# Transformer, 2018, and not from the paper of 2017, as one can read.)
#
# Other answers to the same question are one argument here, `positions="rotary"`, `"alibi"`, `"t5"`,
# `"shaw"`. With a relative kind, moving a sentence changes nothing:

# %%
from keras_addnorm.layers import TransformerEncoder

sentence_vectors = rng.normal(size=(1, 5, 16)).astype("float32")
pad = np.zeros((1, 3, 16), "float32")
moved = np.concatenate([pad, sentence_vectors], axis=1)
real = np.array([[False] * 3 + [True] * 5])
for kind in ("rotary", "alibi", "t5", "shaw"):
    encoder = TransformerEncoder(1, num_heads=2, intermediate_dim=32, positions=kind)
    at_start, later = encoder(sentence_vectors), encoder(moved, padding_mask=real)[:, 3:]
    print(f"{kind:7} changes by {np.abs(np.asarray(at_start) - np.asarray(later)).max():.1e}")

# %% [markdown]
# ## Exercises

# %% include="check.py"

# %% [markdown]
# **1.** A window: each position may look at itself and at the two positions before it, and not ahead.
# Return the mask, (length, length), True where it may look.


# %% exercise=1
def window_mask(length):
    return None


# %% check=1
check(
    1,
    lambda: window_mask(5),
    lambda mask: np.array_equal(
        mask, np.tril(np.ones((5, 5), bool)) & ~np.tril(np.ones((5, 5), bool), -3)
    ),
    "Use `distances`: which of them are allowed?",
)

# %% [markdown]
# **2.** The entries of q and k are independent with mean 0 and variance **4**, and K = 64. By what has
# one to divide q · k to get variance 1?

# %% exercise=2
divisor = None

# %% check=2
check(
    2,
    lambda: divisor,
    lambda d: abs(d - 32) < 1e-6,
    "The variance of a product of two independent numbers of mean 0 is the product of variances.",
)

# %% [markdown]
# **3.** Split (B, T, D) into heads, (B, H, T, K), and put them together again. `merge` undoes `split`.


# %% exercise=3
def split(x, heads):
    return None


def merge(x):
    return None


# %% check=3
example = rng.normal(size=(2, 3, 12))
check(
    3,
    lambda: merge(split(example, 4)),
    lambda whole: split(example, 4).shape == (2, 4, 3, 3) and np.array_equal(whole, example),
    "Reshape to (B, T, H, K) first, then swap two axes. Reshaping alone mixes the positions.",
)

# %% [markdown]
# Where to go on: all fields of `AttentionConfig` and all kinds of positions are on the page
# [Attention and positions](../docs/attention_and_positions.md).
