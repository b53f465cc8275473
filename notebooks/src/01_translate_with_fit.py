# %% [markdown]
# # Translate with `fit`
#
# From sentence pairs to translations with `compile` and `fit`, English to Spanish, in about a minute
# of processor time. It is the plan of the well-known Keras example, with what earlier versions of that
# example had wrong (source and target were swapped, padding masks were computed and not used, padding
# counted in loss and accuracy; mended in November 2024), and with what it still leaves out: a beam
# search from a cache, and BLEU.
#
# **The ten steps of the pipeline**, with the place where each is:
#
# | | step | here |
# |---|---|---|
# | 1 | text | `demo_splits` |
# | 2 | pieces of words | `TokenizerPair` |
# | 3 | ids, with start and end | `make_training_dataset` |
# | 4 | embeddings, times √D | `Seq2SeqTransformer` |
# | 5 | plus positions | |
# | 6 | encoder: self-attention and feed-forward, each with Add & Norm | |
# | 7 | the memory: one vector for each source piece | |
# | 8 | decoder: causal self-attention, cross-attention to the memory, feed-forward | |
# | 9 | logits and softmax over the vocabulary | |
# | 10 | a search that picks pieces until the end | `translate` |

# %% include="setup.py"

# %% [markdown]
# ## Sentences
#
# The built-in set makes sentences by grammar, with names, dates and times. It needs no download. We
# take those about travelling; held-out sentences are never among those to train on.

# %%
from keras_addnorm.data.demo import demo_splits

TRAVEL = ("departure", "journey", "opening", "visit")
splits = {
    name: [(pair.source, pair.target) for pair in pairs if pair.template in TRAVEL]
    for name, pairs in demo_splits(
        "es", train_size=8000, validation_size=400, test_size=400
    ).items()
}
print({name: len(pairs) for name, pairs in splits.items()})
for english, spanish in splits["train"][:3]:
    print(f"\n{english}\n{spanish}")

# %% [markdown]
# ## Pieces and batches
#
# One sub-word vocabulary for both languages. Batches are sorted into *buckets* of like length, so
# that there is little padding.

# %%
from keras_addnorm.data import TokenizerPair, make_training_dataset

tokenizers = TokenizerPair.train(splits["train"], vocabulary_size=500, kind="bpe")
buckets = {"bucket_lengths": (16, 24), "tokens_per_batch": 1024}
train = make_training_dataset(splits["train"], tokenizers, shuffle_seed=1, **buckets)
validation = make_training_dataset(splits["validation"], tokenizers, **buckets)
print(train.report)

# %% [markdown]
# **Look at a batch before you train.** This is what finds a swapped source and target: the loss
# cannot, it falls as nicely in the wrong direction. The encoder has to read English; the decoder reads
# Spanish behind a start, and has to say the next piece:

# %%
inputs, labels = next(iter(train.as_numpy_iterator()))
rows = {"source": inputs["source"][0], "target": inputs["target"][0], "labels": labels[0]}
for name, row in rows.items():
    print(f"{name}: {row[:9].tolist()} ...\n  {tokenizers.target.decode(row.tolist())}")
print("\n0 pads, 1 starts, 2 ends. Share of padding:", (labels == 0).mean().round(3))

# %% [markdown]
# ## Model and training
#
# The scheme is the Add & Norm; another name is another one, and nothing else changes.

# %%
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedAccuracy, MaskedSparseCategoricalCrossentropy

config = Seq2SeqConfig.preset(
    "tiny",
    source_vocabulary_size=tokenizers.source.vocabulary_size,
    target_vocabulary_size=tokenizers.target.vocabulary_size,
    num_encoder_layers=2,
    num_decoder_layers=2,
    hidden_dim=64,
    intermediate_dim=128,
    scheme="pre_ln",
    dropout=0.0,
    max_length=40,
    share_embeddings=True,
)
model = Seq2SeqTransformer(config)
epochs = 5
rate = keras.optimizers.schedules.CosineDecay(
    0.0, epochs * len(train), warmup_target=0.006, warmup_steps=40
)
model.compile(
    keras.optimizers.Adam(rate, beta_2=0.98),
    MaskedSparseCategoricalCrossentropy(),
    metrics=[MaskedAccuracy()],
    jit_compile=False,  # XLA pays for itself in longer trainings
)
history = model.fit(
    train, validation_data=validation, epochs=epochs, shuffle=False, verbose=0
).history

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.4, 3))
for axis, name in zip(axes, ("loss", "accuracy"), strict=True):
    for label, key in (("training", name), ("held out", f"val_{name}")):
        axis.plot(range(1, epochs + 1), history[key], marker="o", label=label)
    axis.set(xlabel="epoch", title=name)
    axis.legend()
plt.show()

# %% [markdown]
# *What to see: the held-out curve follows the training curve. Accuracy counts pieces that are
# predicted right when all pieces before them are given.*
#
# ## Translate
#
# Greedy search takes the best piece each time; a beam keeps several beginnings. Both read keys and
# values of earlier pieces from a cache.

# %%
from keras_addnorm.decoding import translate
from keras_addnorm.training import evaluate_translations

sources, references = zip(*splits["test"][:64], strict=True)
searches = {"greedy": {}, "beam of 4": {"num_beams": 4, "length_penalty": 0.6}}
found = {}
for name, options in searches.items():
    found[name] = translate(model, tokenizers, sources, jit_compile=False, **options).texts
    scores = evaluate_translations(found[name], references, language="es")
    right = sum(map(str.__eq__, found[name], references))
    print(f"{name:10} BLEU {scores.bleu:5.1f}, {right} of {len(references)} exactly right")
print(scores.bleu_signature)

# %%
for source, reference, text in list(zip(sources, references, found["greedy"], strict=True))[:3]:
    print(f"{source}\n  {text}\n  {'exactly right' if text == reference else reference}\n")

# %% [markdown]
# **Why a cache?** The tutorial runs the whole model again for each new piece, encoder and all. The
# result is the same, but the work grows with the square of the length:


# %%
def decode_again_and_again(text, length=40):
    source = np.array([[*tokenizers.source.encode(text), 2]], "int32")
    target = np.array([[1]], "int32")  # the start
    positions = 0
    while target[0, -1] != 2 and target.shape[1] < length:
        logits = model({"source": source, "target": target})  # everything, once more
        positions += target.shape[1]
        target = np.append(target, [[int(np.argmax(logits[0, -1]))]], axis=1)
    return tokenizers.target.decode(target[0].tolist()), positions, target.shape[1] - 1


text, positions, length = decode_again_and_again(sources[0])
print("the same translation:", text == found["greedy"][0])
print(f"again and again: the encoder {length} times, the decoder for {positions} positions")
print(f"with a cache:    the encoder 1 time, the decoder for {length} positions")

# %% [markdown]
# ## Where does the decoder look?
#
# A row is a Spanish piece that is about to be said, a column an English piece.

# %%
import tempfile
from pathlib import Path

from IPython.display import Image

from keras_addnorm.diagnostics import attention_maps, plot_attention

source_ids = [*tokenizers.source.encode(sources[0]), 2]
target_ids = [1, *tokenizers.target.encode(found["greedy"][0])]
maps = attention_maps(model, source_ids, target_ids)


def pieces(tokenizer, ids):
    return [tokenizer.pieces[i].text.replace("▁", "·") for i in ids]


with plt.rc_context({"axes.grid": False}):
    picture = plot_attention(
        maps.cross[-1].mean(axis=0),
        pieces(tokenizers.source, source_ids),
        pieces(tokenizers.target, [*target_ids[1:], 2]),
        Path(tempfile.mkdtemp(), "attention.png"),
    )
Image(filename=str(picture), width=460)

# %% [markdown]
# *What to see: the country, the day, the month and the year look at their counterparts, although day and
# month change places.*
#
# ## Three mistakes, measured
#
# **Masks that are computed and not used.** Append ten paddings to the source. With the mask nothing
# happens; a model that ignores it listens to padding:

# %%
batch = {name: inputs[name][:8] for name in ("source", "target")}
longer = np.pad(batch["source"], [(0, 0), (0, 10)])
logits = np.asarray(model(batch))
memory, mask = model.encode(longer)
with_mask = np.asarray(model.decode_sequence(batch["target"], memory, mask)[0])
everything = np.ones_like(longer, bool)
memory = model.encoder(model.encoder_embedding(longer), padding_mask=everything)
without_mask = np.asarray(model.decode_sequence(batch["target"], memory, everything)[0])
real = batch["target"] != 0
print("with the mask, logits change by   ", np.abs(with_mask - logits)[real].max())
print("without the mask, logits change by", np.abs(without_mask - logits)[real].max())

# %% [markdown]
# **Loss and accuracy over padding.** A label that is padding is no word. Here are the loss of this
# model, and what comes out if all positions count:

# %%
logits = np.asarray(model({name: inputs[name] for name in ("source", "target")}))
plain = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
print("loss over words       ", float(MaskedSparseCategoricalCrossentropy()(labels, logits)))
print("loss over all         ", float(plain(labels, logits)))
right = logits.argmax(-1) == labels
print("accuracy over words   ", right[labels != 0].mean().round(3))
print("accuracy over all     ", right.mean().round(3))

# %% [markdown]
# **Source and target swapped.** The same model on a batch the wrong way round:

# %%
wrong_way = {"source": labels, "target": np.pad(inputs["source"][:, :-1], [(0, 0), (1, 0)])}
wrong_way["target"][:, 0] = 1
swapped = model(wrong_way)
print("loss, English to Spanish", float(model.loss(labels, logits)))
print("loss, Spanish to English", float(model.loss(inputs["source"], swapped)))

# %% [markdown]
# ## Exercises

# %% include="check.py"

# %% [markdown]
# **1.** Make the three rows of a training pair from two lists of ids without special ones: what the
# encoder reads, what the decoder reads, and what it has to say. (Start 1, end 2, no padding.)


# %% exercise=1
def training_rows(source, target):
    return None  # {"source": [...], "target": [...], "labels": [...]}


# %% check=1
check(
    1,
    lambda: training_rows([7, 8, 9], [11, 12]),
    lambda rows: rows == {"source": [7, 8, 9, 2], "target": [1, 11, 12], "labels": [11, 12, 2]},
    "The label at a position is the next piece: target and labels are the same, one place apart.",
)

# %% [markdown]
# **2.** Write the accuracy over words: `labels` and `predictions` are (B, T), 0 is padding.


# %% exercise=2
def accuracy_over_words(labels, predictions):
    return None


# %% check=2
check(
    2,
    lambda: accuracy_over_words(
        np.array([[5, 6, 2, 0], [7, 2, 0, 0]]), np.array([[5, 9, 2, 2]] * 2)
    ),
    lambda share: abs(share - 2 / 5) < 1e-6,
    "Five labels are words here. Count the right ones among them.",
)

# %% [markdown]
# **3.** Log-probabilities add up, so long translations score lower. Write the score of the beam search
# above: the sum of the log-probabilities divided by ((5 + n) / 6)^alpha, n the number of pieces.


# %% exercise=3
def beam_score(log_probabilities, alpha):
    return None


# %% check=3
check(
    3,
    lambda: [beam_score([-0.5] * n, 0.6) for n in (1, 7)],
    lambda scores: np.allclose(scores, [-0.5, -3.5 / 2**0.6]),
    "For n = 1 the divisor is 1, for n = 7 it is 2 to the power of alpha.",
)

# %% [markdown]
# Where to go on: the same on the command line, in the [README](../README.md); other data in
# [Data](../docs/data.md); every search in [Decoding](../docs/decoding.md); and
# [From training to TensorFlow Serving](07_training_to_serving.ipynb).
