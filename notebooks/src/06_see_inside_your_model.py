# %% [markdown]
# # See inside your model
#
# A loss curve says that a model learns, not which of its layers do. Here we train a small translator
# while a *monitor* watches its residual stream, *inspect* it, find out how *deep* it really is, and
# *prune* what it does not need.

# %% include="setup.py"

# %% [markdown]
# ## A small model
#
# English to German, sentences about travelling, two layers on each side.

# %%
from keras_addnorm.data import TokenizerPair, make_training_dataset
from keras_addnorm.data.demo import demo_splits
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedAccuracy, MaskedSparseCategoricalCrossentropy

splits = {
    name: [(p.source, p.target) for p in pairs if p.template in ("departure", "visit")]
    for name, pairs in demo_splits(train_size=8000, validation_size=600, test_size=0).items()
}
tokenizers = TokenizerPair.train(splits["train"], vocabulary_size=400, kind="bpe")
buckets = {"bucket_lengths": (32,), "tokens_per_batch": 1024}
train = make_training_dataset(splits["train"], tokenizers, shuffle_seed=1, **buckets)
validation = make_training_dataset(splits["validation"], tokenizers, **buckets)
batch = next(iter(validation.as_numpy_iterator()))

config = Seq2SeqConfig.preset(
    "micro",
    source_vocabulary_size=tokenizers.source.vocabulary_size,
    target_vocabulary_size=tokenizers.target.vocabulary_size,
    scheme="pre_ln",
    dropout=0.0,
    share_embeddings=True,
)
model = Seq2SeqTransformer(config)
print(len(config.sublayer_names), "sublayers, from", config.sublayer_names[0])
print(f"{model.count_params():,} weights, {len(splits['train'])} pairs of sentences")

# %% [markdown]
# ## Watch it train
#
# `ResidualMonitor` runs a fixed batch through the model every so many steps and writes down what each
# sublayer does. It changes nothing in the training.

# %%
import tempfile
from pathlib import Path

from keras_addnorm.diagnostics import ResidualLog, ResidualMonitor

log = Path(tempfile.mkdtemp(), "residuals.csv")
monitor = ResidualMonitor(batch, every=20, csv=log)
epochs = 6
rate = keras.optimizers.schedules.CosineDecay(
    0.0, epochs * len(train), warmup_target=0.01, warmup_steps=20
)
model.compile(
    keras.optimizers.Adam(rate, beta_2=0.98),
    MaskedSparseCategoricalCrossentropy(),
    metrics=[MaskedAccuracy()],
    jit_compile=False,
)
history = model.fit(train, epochs=epochs, shuffle=False, verbose=0, callbacks=[monitor]).history
print("accuracy after each epoch", np.round(history["accuracy"], 2))

# %%
rows = ResidualLog(log).read()
figure, axes = plt.subplots(1, 2, figsize=(9, 3))
for axis, stack in zip(axes, ("encoder", "decoder"), strict=True):
    names = [name for name in config.sublayer_names if name.startswith(stack)]
    steps = sorted({row.step for row in rows})
    ratio = {(row.step, row.sublayer): row.residual_ratio for row in rows}
    grid = [[ratio[step, name] for step in steps] for name in names]
    image = axis.imshow(grid, cmap="cividis", aspect="auto", vmin=0, vmax=1)
    axis.set_yticks(range(len(names)), [name.partition("/")[2] for name in names], fontsize=8)
    axis.set_xticks(range(0, len(steps), 3), steps[::3])
    axis.set(title=stack, xlabel="training step")
    axis.grid(visible=False)
figure.colorbar(image, ax=axes, label="‖F(x)‖ / ‖x‖")
plt.show()

# %% [markdown]
# *What to see: each row is a sublayer, time goes to the right. Bright sublayers write much into the
# stream. Which of them grow during training, and which stay dark?*
#
# ## Inspect
#
# One forward and one backward pass over a batch. Verdicts come first, then a table: sizes of x, F(x)
# and y, gradients, and `effect`, the share of the stream that is the sublayer's doing.

# %%
from keras_addnorm.diagnostics import effective_depth, inspect

report = inspect(model, batch, depth=effective_depth(model, batch))
print(report)

# %% [markdown]
# Post-LN has no quiet sublayers by design, ReZero starts with nothing else: numbers are to be compared
# within one scheme.

# %%
figures = report.plot()
print(sorted(figures))
figures["gradients"]

# %% [markdown]
# *What to see: the gradient at the stream should reach the first sublayer. A line that falls by
# orders of magnitude to the left means that the first layers do not learn.*
#
# ## How deep is it?
#
# `effective_depth` has skipped each sublayer in turn (F(x) = 0) and measured the loss. If n sublayers
# matter equally and the others do not matter, the effective depth is n.

# %%
found = report.effective_depth
increases = found.increases
order = sorted(increases, key=increases.get)
figure, axis = plt.subplots(figsize=(6.4, 4.4))
axis.barh(range(len(order)), [increases[name] for name in order])
axis.set_yticks(range(len(order)), order, fontsize=8)
axis.set(xlabel="increase of the loss without it")
plt.show()
print(found.summary)
quiet = order[:2]
print("matter least:", quiet)

# %% [markdown]
# *What to see: few sublayers carry the model. Losses without some others hardly change.*
#
# ## Prune
#
# `prune` builds the model without them, and measures what that costs: each one alone, and all
# together.

# %%
from keras_addnorm.diagnostics import Validation, prune

result = prune(model, quiet, evaluate=Validation(validation))
print(result)

# %% [markdown]
# All together often cost more than the sum of their single costs, since layers make up for one
# another. The pruned model is one like any other: it can be trained on, saved and exported.

# %%
from keras_addnorm.decoding import translate

for name, each in (("whole ", model), ("pruned", result.model)):
    text = "The plane to Ireland takes off at 1:20 AM."
    print(name, translate(each, tokenizers, [text], jit_compile=False).texts[0])

# %% [markdown]
# ## The tensors themselves
#
# `observe` hands out what passes through each Add & Norm. For Pre-LN y is x + F(x), exactly:

# %%
from keras_addnorm.diagnostics import observe

inputs, labels = batch
with observe(model) as observation:
    model(inputs)
record = observation["decoder/1/cross_attention"]
x, f, y = (np.asarray(tensor) for tensor in (record.residual, record.branch, record.merged))
print("shapes", x.shape, f.shape, " largest |y - (x + F(x))|:", np.abs(y - (x + f)).max())

# %% [markdown]
# `report.to_html("report.html")` draws all of this as one page without network, with attention maps if
# you pass a sentence; `keras-addnorm inspect runs/mine --html report.html` does it for a run.
#
# ## Exercises

# %% include="check.py"

# %% [markdown]
# **1.** Which sublayer of this model's **decoder** costs most when it is skipped? Give its name.

# %% exercise=1
most_needed = None

# %% check=1
check(
    1,
    lambda: most_needed,
    lambda name: name == max((n for n in increases if n.startswith("decoder")), key=increases.get),
    "The bars of the picture are `increases`, a dict.",
)

# %% [markdown]
# **2.** Write the effective depth: increases of the loss in, (Σ d)² / Σ d² over the positive ones out.


# %% exercise=2
def depth_of(increases):
    return None


# %% check=2
check(
    2,
    lambda: [depth_of([1.0, 1.0, 1.0, 0.0]), depth_of([2.0, -0.5])],
    lambda depths: np.allclose(depths, [3, 1]),
    "A sublayer without which the loss is smaller counts 0.",
)

# %% [markdown]
# **3.** Compute `effect` of `record` from `x` and `f`: for Pre-LN, what the sublayer changes over what
# is there without it. Take all positions that are not padding (`inputs["target"] != 0`).

# %% exercise=3
effect = None

# %% check=3
check(
    3,
    lambda: effect,
    lambda value: abs(value - report["decoder/1/cross_attention"].effect) < 1e-3,
    "Without the branch y would be x. Norms are over all real positions at once.",
)

# %% [markdown]
# Where to go on: every number and verdict in [Diagnostics](../docs/diagnostics.md), more on the three
# tools in [Monitoring, pruning, folding](../docs/monitor_prune_fold.md).
