# %% [markdown]
# # From training to TensorFlow Serving
#
# A translator is more than its weights: text has to become pieces, a search has to run, pieces have to
# become text. The export puts all of it into **one SavedModel that takes strings and returns
# strings**. Here we train a small model, export it, load it as a client would, and ask a server.

# %% include="setup.py"

# %% [markdown]
# ## A small model
#
# Sentences about planes, so that it takes seconds.

# %%
from keras_addnorm.data import TokenizerPair, make_training_dataset
from keras_addnorm.data.demo import demo_splits
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedAccuracy, MaskedSparseCategoricalCrossentropy

splits = {
    name: [(p.source, p.target) for p in pairs if p.template == "departure"]
    for name, pairs in demo_splits(train_size=24000, validation_size=0, test_size=600).items()
}
tokenizers = TokenizerPair.train(splits["train"], vocabulary_size=250, kind="bpe")
train = make_training_dataset(
    splits["train"], tokenizers, shuffle_seed=1, bucket_lengths=(16, 24), tokens_per_batch=1024
)
config = Seq2SeqConfig.preset(
    "tiny",
    source_vocabulary_size=tokenizers.source.vocabulary_size,
    target_vocabulary_size=tokenizers.target.vocabulary_size,
    num_encoder_layers=2,
    num_decoder_layers=2,
    hidden_dim=64,
    intermediate_dim=128,
    scheme="ln_scaling",
    dropout=0.0,
    max_length=32,
    share_embeddings=True,
)
model = Seq2SeqTransformer(config)
epochs = 6
rate = keras.optimizers.schedules.CosineDecay(
    0.0, epochs * len(train), warmup_target=0.006, warmup_steps=40
)
model.compile(
    keras.optimizers.Adam(rate, beta_2=0.98),
    MaskedSparseCategoricalCrossentropy(),
    metrics=[MaskedAccuracy()],
    jit_compile=False,
)
history = model.fit(train, epochs=epochs, shuffle=False, verbose=0).history
print("accuracy after each epoch", np.round(history["accuracy"], 3))

# %%
from keras_addnorm.decoding import translate

sources, references = zip(*splits["test"], strict=True)
in_python = translate(
    model, tokenizers, sources, num_beams=2, length_penalty=0.6, jit_compile=False
).texts
print(f"{sum(map(str.__eq__, in_python, references))} of {len(references)} exactly right")
print(sources[0], "->", in_python[0])

# %% [markdown]
# ## Export
#
# The factors of the residual scheme (here LN-scaling's 1/√ℓ) are multiplied into the weights first: what
# is served has no trace of them. The version appears whole or not at all.

# %%
import tempfile
from pathlib import Path

from keras_addnorm.serving import export_saved_model

folder = Path(tempfile.mkdtemp(), "planes")
version = export_saved_model(
    model,
    tokenizers,
    folder,
    num_beams=2,
    length_penalty=0.6,
    batch_buckets=(1,),
    length_buckets=(32,),
    card={"licence": "Apache-2.0", "training data": "the built-in set"},
)
for path in sorted(version.rglob("*")):
    if path.is_file():
        print(f"{path.stat().st_size:10,}  {path.relative_to(folder)}")

# %% [markdown]
# `assets.extra/README.md` in it has the exact `docker`, `curl` and gRPC lines for this model. It
# begins so:

# %%
print("\n".join((version / "assets.extra" / "README.md").read_text().splitlines()[:20]))

# %% [markdown]
# ## Load it as any TensorFlow program would
#
# No Keras, no class of this package, no tokeniser file: a signature that takes strings.

# %%
import tensorflow as tf

loaded = tf.saved_model.load(str(version))
answer = loaded.signatures["serving_default"](texts=tf.constant([sources[0], ""]))
for text, score in zip(answer["translations"].numpy(), answer["scores"].numpy(), strict=True):
    print(repr(text.decode()), score.round(3))
print("signatures:", sorted(loaded.signatures))

# %% [markdown]
# `load_translator` wraps that. Its texts are those of `translate` in Python:

# %%
from keras_addnorm.serving import load_translator

translator = load_translator(folder)
texts = [translation.text for translation in translator(sources)]
print("equal to Python:", texts == list(in_python))

# %% [markdown]
# ## Ask a server
#
# The local server speaks TensorFlow Serving's REST and gRPC. In a terminal it is
# `keras-addnorm serve planes`; here it runs in a thread, on any free port.

# %%
import json
import urllib.request

from keras_addnorm.serving import Client
from keras_addnorm.serving.server import Settings, running

settings = Settings(folder, port=0, grpc_port=None, warm_up=False)
with running(settings) as server:
    url = f"http://127.0.0.1:{server.port}/v1/models/planes:predict"
    body = json.dumps({"instances": [sources[0]]}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body)) as response:
        print(json.dumps(json.load(response), ensure_ascii=False, indent=2))

    client = Client(f"http://127.0.0.1:{server.port}", model="planes")
    print(client.translate(sources[1:3]))
    pieces = client.predict("tokenize", texts=[sources[0]])["pieces"]

# %% [markdown]
# The same request goes to TensorFlow Serving itself; only the address is another one:
#
# ```bash
# docker run -p 8501:8501 -v "$PWD/planes:/models/planes" -e MODEL_NAME=planes tensorflow/serving
# curl -d '{"instances": ["The plane to Ireland takes off at 1:20 AM."]}' \
#     http://localhost:8501/v1/models/planes:predict
# ```
#
# TensorFlow Serving switches XLA off unless it is told otherwise, so `serving_default` needs none.
# Texts of unequal length in one request are no trouble either: padding is done inside the graph.

# %% [markdown]
# ## Exercises

# %% include="check.py"

# %% [markdown]
# **1.** Write the body of a REST request, as a string, that asks for the translations of several texts.


# %% exercise=1
def request_body(texts):
    return None


# %% check=1
check(
    1,
    lambda: request_body(["Wie geht's?", 'say "yes"']),
    lambda body: json.loads(body) == {"instances": ["Wie geht's?", 'say "yes"']},
    "Quotation marks in a text have to survive: let `json.dumps` write the string.",
)

# %% [markdown]
# **2.** Which version does a server load from the folder with versions 1, 2 and 10, and which number
# does the next export get? (An `export_saved_model` without `version`.)

# %% exercise=2
served, following = None, None

# %% check=2
check(
    2,
    lambda: (served, following),
    lambda pair: pair == (10, 11),
    "Versions are numbers, not words: 10 is more than 2.",
)

# %% [markdown]
# **3.** Use `loaded` to score two translations of the first sentence: the reference, and the reference
# of another sentence. Return both numbers.


# %% exercise=3
def two_scores():
    return None


# %% check=3
check(
    3,
    two_scores,
    lambda scores: scores[0] > scores[1] and abs(scores[0]) < 20,
    "The signature `score` takes `source` and `target`, two constants of strings, and returns `scores`.",
)

# %% [markdown]
# Where to go on: [Export a SavedModel](../docs/serving.md), and
# [other runtimes](../docs/runtimes.md): CTranslate2, ONNX Runtime and LiteRT.
