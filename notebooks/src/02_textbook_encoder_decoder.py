# %% [markdown]
# # The textbook's encoder-decoder in Keras 3
#
# A well-known textbook translates English to Spanish with two LSTMs. Readers who ran its code on
# Keras 3 saw the accuracy fall from about 60 % to about 10 % (ageron/handson-ml3#163,
# keras-team/keras#20320), and were told to stay on Keras 2. Here the model is built in Keras 3, its
# accuracy is restored, and we find out what had gone wrong: **what was counted**. Then we put a
# Transformer in its place.
#
# | year | how sequences were translated | runs in this notebook |
# |---|---|---|
# | 1986, 1990 | recurrent networks: one word after the other, one state | "How far does the first word reach?" |
# | 1997, 2014 | LSTM and GRU: gates, so that gradients survive more steps | there, too |
# | 2014 | seq2seq: one network reads, another one writes; one vector in between | "The model of the book, smaller" |
# | 2014, 2015 | additive attention: the writer looks back at all words of the source | "Attention that adds" |
# | 2017 | self-attention alone: the Transformer | "A Transformer in its place" |

# %% include="setup.py"

# %% [markdown]
# ## Sentences as the book has them
#
# Words (not pieces), lower case, no punctuation, and everything padded to 50 words.

# %%
from keras import layers

from keras_addnorm.data.demo import demo_splits

KINDS = ("departure", "loan", "reason", "visit")
LENGTH = 50
splits = {
    name: [(pair.source, pair.target) for pair in pairs if pair.template in KINDS]
    for name, pairs in demo_splits("es", train_size=6000, validation_size=600, test_size=0).items()
}


def vectorizer(texts):
    layer = layers.TextVectorization(max_tokens=1000, output_sequence_length=LENGTH)
    layer.adapt(texts)
    return layer


english, spanish = zip(*splits["train"], strict=True)
english_ids = vectorizer(english)
spanish_ids = vectorizer([f"startofseq {text} endofseq" for text in spanish])
vocabulary = spanish_ids.get_vocabulary()
START, END = vocabulary.index("startofseq"), vocabulary.index("endofseq")


def as_ids(pairs):
    english, spanish = zip(*pairs, strict=True)
    inputs = {
        "source": np.asarray(english_ids(list(english)), "int32"),
        "target": np.asarray(spanish_ids([f"startofseq {text}" for text in spanish]), "int32"),
    }
    labels = np.asarray(spanish_ids([f"{text} endofseq" for text in spanish]), "int32")
    return inputs, labels


train, held_out = as_ids(splits["train"]), as_ids(splits["validation"])
words = held_out[1] != 0  # which labels are words, and not padding
print(splits["train"][0])
print("source", train[0]["source"][0, :12], "...")
print("target", train[0]["target"][0, :12], "...")
print("labels", train[1][0, :12], "...")
print(f"{len(train[1])} sentences; {words.mean():.0%} of all positions are words")

# %% [markdown]
# ## The model of the book, smaller
#
# `mask_zero=True` tells all layers that follow which positions are padding.


# %%
def book_model(mask_zero):
    keras.utils.set_random_seed(1)
    source = keras.Input((LENGTH,), dtype="int32", name="source")
    target = keras.Input((LENGTH,), dtype="int32", name="target")
    read = layers.Embedding(len(english_ids.get_vocabulary()), 64, mask_zero=mask_zero)(source)
    written = layers.Embedding(len(vocabulary), 64, mask_zero=mask_zero)(target)
    _, *state = layers.LSTM(96, return_state=True)(read)
    hidden = layers.LSTM(96, return_sequences=True)(written, initial_state=state)
    probabilities = layers.Dense(len(vocabulary), activation="softmax")(hidden)
    model = keras.Model({"source": source, "target": target}, probabilities)
    model.compile(
        keras.optimizers.Adam(0.006),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=False,
    )
    return model


book = book_model(mask_zero=True)
history = book.fit(*train, batch_size=64, epochs=4, verbose=0).history
print("accuracy after each epoch", np.round(history["accuracy"], 2))

# %% [markdown]
# ## Three accuracies of one model
#
# Count the right predictions of held-out sentences, once over words and once over all 50 positions:


# %%
def which_are_right(model):
    return np.asarray(model(held_out[0])).argmax(-1) == held_out[1]


def accuracies(right):
    return {"over words": right[words].mean(), "over all 50": right.mean()}


right = {"with the mask": which_are_right(book)}
reported = book.evaluate(*held_out, batch_size=256, verbose=0, return_dict=True)["accuracy"]
print(f"reported by this Keras ({keras.__version__})  {reported:.3f}")
for name, share in accuracies(right["with the mask"]).items():
    print(f"{name:30} {share:.3f}")

# %% [markdown]
# The model is the same; the two numbers differ by the share of words among all positions. A prediction
# after the end of a sentence means nothing, is never 0 here, and counts as wrong.
#
# **What had gone wrong.** `metrics=["accuracy"]` in Keras 2 left out what the mask hides. In Keras 3 a
# metric did that *only if there were sample weights, too* (keras-team/keras#21569 says so in 2025),
# while the loss used the mask as ever. So readers saw the accuracy over all 50 positions. With about 8
# words a sentence, 60 % over words is 60 % · 8 / 50 ≈ 10 %: the number that they reported. The
# installed version applies the mask again. A metric that says what it counts does not depend on that:

# %%
from keras_addnorm.training import MaskedAccuracy

print("MaskedAccuracy:", float(MaskedAccuracy()(held_out[1], np.asarray(book(held_out[0])))))

# %% [markdown]
# ## The opposite mistake looks like success
#
# Without `mask_zero`, padding is in the loss, and the encoder's last state has read dozens of paddings
# after the sentence. The accuracy that Keras reports is splendid:

# %%
without = book_model(mask_zero=False)
history = without.fit(*train, batch_size=64, epochs=4, verbose=0).history
print("accuracy after each epoch", np.round(history["accuracy"], 2))
right["without a mask"] = which_are_right(without)

# %%
figure, axis = plt.subplots(figsize=(5.6, 3))
for number, (label, of_model) in enumerate(right.items()):
    shares = accuracies(of_model)
    places = np.arange(2) + 0.38 * (number - 0.5)
    bars = axis.bar(places, list(shares.values()), 0.36, label=label)
    axis.bar_label(bars, fmt="{:.0%}")
axis.set_xticks(range(2), list(shares))
axis.set(ylabel="accuracy", ylim=(0, 1.15))
axis.legend()
plt.show()

# %% [markdown]
# *What to see: over all 50 positions the model without a mask looks better by far, since padding is
# easy to predict. Over words it is the worse one.*
#
# ## Attention that adds
#
# Between the two LSTMs stands one vector, however long the sentence. Bahdanau, Cho and Bengio (2014)
# let the writer look back at every word. How well a word j of the source fits what the writer is at, i,
# a small network says, in which query and key are *added*:
#
# > **scoreᵢⱼ = v · tanh(W qᵢ + U kⱼ + b)**
# >
# > **aᵢⱼ = softmaxⱼ(scoreᵢⱼ)**
# >
# > **outputᵢ = Σⱼ aᵢⱼ kⱼ**
#
# W, U, b and v are learned. (The Transformer multiplies query and key instead, which is one product of
# matrices; W, U and v cost a row of numbers for every pair of words.)


# %%
class AdditiveAttention(layers.Layer):
    """Looks from every query at all keys; returns what it reads, and the weights."""

    def __init__(self, units, **options):
        super().__init__(**options)
        self.units = units
        self.of_query = layers.Dense(units, use_bias=False)
        self.of_key = layers.Dense(units)
        self.score = layers.Dense(1, use_bias=False)

    def build(self, queries_shape, keys_shape):
        self.of_query.build(queries_shape)
        self.of_key.build(keys_shape)
        self.score.build((*keys_shape[:-1], self.units))

    def call(self, queries, keys, key_mask=None):
        ops = keras.ops
        of_queries = ops.expand_dims(self.of_query(queries), 2)  # (B, T, 1, U)
        of_keys = ops.expand_dims(self.of_key(keys), 1)  # (B, 1, S, U)
        scores = ops.squeeze(self.score(ops.tanh(of_queries + of_keys)), -1)  # (B, T, S)
        if key_mask is not None:
            scores = ops.where(ops.expand_dims(key_mask, 1), scores, -1e9)
        weights = ops.softmax(scores)
        return ops.matmul(weights, keys), weights

    def get_config(self):
        return {**super().get_config(), "units": self.units}


keras.utils.set_random_seed(1)
draw = np.random.default_rng(1)
queries = draw.normal(size=(2, 3, 4)).astype("float32")  # two sentences, three words written
keys = draw.normal(size=(2, 5, 4)).astype("float32")  # five words of the source
real = np.array([[True] * 5, [True, True, False, False, False]])
attention = AdditiveAttention(7)
output, weights = attention(queries, keys, real)

# By the formula, word by word.
W, U, b, v = (np.asarray(weight) for weight in attention.get_weights())
by_hand = np.zeros((2, 3, 4))
for row, i in np.ndindex(2, 3):
    length = real[row].sum()
    scores = [np.tanh(queries[row, i] @ W + keys[row, j] @ U + b) @ v[:, 0] for j in range(length)]
    shares = np.exp(scores) / np.exp(scores).sum()
    by_hand[row, i] = shares @ keys[row, :length]
print(f"largest difference from the formula: {np.abs(np.asarray(output) - by_hand).max():.1e}")
print("where the first word of the second sentence looks:", np.asarray(weights)[1, 0].round(2))

# %% [markdown]
# ## How far does the first word reach?
#
# One layer of each kind, with its first weights, reads rows of random vectors. Change the first vector, and
# see how much of that change is left in what comes out at the last place:

# %%
from keras_addnorm.layers import TransformerEncoder


def at_the_end(kind, width=16):
    """A function from rows of vectors to the output at the last place."""
    if kind == "additive attention":
        layer = AdditiveAttention(width)
        return lambda rows: layer(rows[:, -1:], rows)[0][:, 0]
    if kind == "Transformer":
        layer = TransformerEncoder(1, num_heads=4, intermediate_dim=2 * width, scheme="pre_ln")
        return lambda rows: layer(rows)[:, -1]
    return getattr(layers, kind)(width)


def reach(kind, length, seed):
    keras.utils.set_random_seed(seed)
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(16, length, 16)).astype("float32")
    changed = rows.copy()
    changed[:, 0] += 0.1 * draw.normal(size=(16, 16))
    layer = at_the_end(kind)
    before, after = np.asarray(layer(rows)), np.asarray(layer(changed))
    return np.linalg.norm(after - before) / np.linalg.norm(changed - rows)


print("length               5                    15                    45, three seeds each")
for kind in ("SimpleRNN", "GRU", "LSTM", "additive attention", "Transformer"):
    shares = [[f"{reach(kind, length, seed):.0e}" for seed in (1, 2, 3)] for length in (5, 15, 45)]
    print(f"{kind:18}", "  ".join(" ".join(each) for each in shares))

# %% [markdown]
# What has to pass through every state between shrinks by about the same factor at each word, down to
# the rounding of float32. Gates can keep it, but have to learn when: fresh ones do little better. An
# attention's share falls only with 1 / length, because it begins by looking everywhere alike; from the
# first word to the last is one step. (These are first weights. Of the five kinds this notebook trains
# two, the LSTMs and the Transformer, with one seed.)
#
# ## A Transformer in its place
#
# The same ids, the same number of epochs. Its decoder looks at every source word (cross-attention)
# instead of one state.

# %%
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

config = Seq2SeqConfig.preset(
    "tiny",
    source_vocabulary_size=len(english_ids.get_vocabulary()),
    target_vocabulary_size=len(vocabulary),
    num_encoder_layers=1,
    num_decoder_layers=1,
    hidden_dim=64,
    intermediate_dim=128,
    scheme="pre_ln",
    dropout=0.0,
    max_length=LENGTH,
    start_id=START,
    end_id=END,
)
keras.utils.set_random_seed(1)
transformer = Seq2SeqTransformer(config)
transformer.compile(
    keras.optimizers.Adam(0.006, beta_2=0.98),
    MaskedSparseCategoricalCrossentropy(),
    metrics=[MaskedAccuracy()],
    jit_compile=False,
)
transformer.fit(*train, batch_size=64, epochs=4, verbose=0)
right["Transformer"] = which_are_right(transformer)
for label, model in (("two LSTMs", book), ("Transformer", transformer)):
    print(f"{label:12} {model.count_params():8,} weights")
for label, of_model in right.items():
    print(f"{label:15} {of_model[words].mean():.1%} of words right")

# %%
figure, axis = plt.subplots(figsize=(5.6, 3))
counts = words.sum(axis=0)
for label, of_model in (
    ("two LSTMs", right["with the mask"]),
    ("Transformer", right["Transformer"]),
):
    by_place = (of_model & words).sum(axis=0)[counts > 30] / counts[counts > 30]
    axis.plot(range(1, len(by_place) + 1), by_place, marker=".", label=label)
axis.set(xlabel="word of the translation", ylabel="share that is right", ylim=(0, 1.05))
axis.legend()
plt.show()

# %% [markdown]
# *What to see: names, countries and numbers are where one state has to remember most. The
# Transformer can look them up.*
#
# ## Translations
#
# Accuracy is counted with the right beginning given. Translating has to live with its own words:


# %%
def greedy(model, source, steps=24):
    target = np.zeros((len(source), LENGTH), "int32")
    target[:, 0] = START
    for step in range(steps):
        probabilities = model.predict_on_batch({"source": source, "target": target})
        target[:, step + 1] = probabilities[:, step].argmax(-1)
    return target[:, 1:]


def as_text(ids):
    ids = ids.tolist()
    ids = ids[: ids.index(END)] if END in ids else ids
    return " ".join(vocabulary[i] for i in ids if i)


some = held_out[0]["source"][:4]
by_book = greedy(book, some)
by_transformer, _ = transformer.generate(some, max_length=24, jit_compile=False)
for row in range(4):
    print(f"source       {splits['validation'][row][0]}")
    print(f"reference    {as_text(held_out[1][row])}")
    print(f"two LSTMs    {as_text(by_book[row])}")
    print(f"Transformer  {as_text(by_transformer[row])}\n")

# %% [markdown]
# After so few epochs the LSTMs write fluent sentences about something else: their state has kept the
# kind of the sentence and lost what it was about. The Transformer has persons and things right and is
# still learning numbers.
#
# ## One more trap: `key_dim`
#
# Many Transformers in Keras are written with `MultiHeadAttention(num_heads, key_dim=embed_dim)`.
# `key_dim` is the width of **each** head. With 8 heads that is an attention eight times as large as
# the paper's, which divides the width among its heads:

# %%
for key_dim in (128, 128 // 8):
    attention = layers.MultiHeadAttention(num_heads=8, key_dim=key_dim)
    attention.build((None, None, 128), (None, None, 128))
    print(f"D = 128, 8 heads, key_dim = {key_dim:3}: {attention.count_params():8,} weights")

# %% [markdown]
# ## Exercises

# %% include="check.py"

# %% [markdown]
# **1.** A model predicts 75 % of words right. Its sentences have 12 words on average and are padded to
# 60. What does an accuracy over all positions show, if nothing behind the end counts as right?

# %% exercise=1
accuracy_over_all = None

# %% check=1
check(
    1,
    lambda: accuracy_over_all,
    lambda share: abs(share - 0.15) < 1e-6,
    "Only 12 of 60 positions can be right at all.",
)

# %% [markdown]
# **2.** Where does the encoder's last state belong? Return the index of the last word of each row
# of ids, (B, T), padded with 0 on the right.


# %% exercise=2
def last_word(ids):
    return None


# %% check=2
check(
    2,
    lambda: last_word(np.array([[5, 6, 7, 0, 0], [4, 0, 0, 0, 0], [8, 3, 9, 2, 6]])),
    lambda places: np.array_equal(places, [2, 0, 4]),
    "Count the words of a row; indices start at 0.",
)

# %% [markdown]
# **3.** How many weights (without biases) has an attention with H heads of width K over a model of
# width D: queries, keys, values and the output?


# %% exercise=3
def attention_weights(width, heads, head_width):
    return None


# %% check=3
check(
    3,
    lambda: [attention_weights(128, 8, k) for k in (128, 16)],
    lambda n: list(n) == [524288, 65536],
    "Four matrices. Three go from D to H·K, one comes back.",
)

# %% [markdown]
# Where to go on: [Attention and positions by hand](05_attention_and_positions.ipynb); a beam search
# over a recurrent model of your own in
# [search_your_own_model.py](../examples/search_your_own_model.py).
