"""A residual scheme of your own, in one class: concatenate and project, instead of add.

    y = W [x; F(LN(x))] + b     against Pre-LN's     y = x + F(LN(x))

Adding is the case W = [I I], b = 0, without the weights. Both are trained side by side, step by
step on the same batches, and compared in parameters, time and loss.

python examples/own_scheme.py            # some minutes on two cores
python examples/own_scheme.py --smoke    # only tries that it runs: 25 s of one processor

The small run of `--smoke` has 10,432 parameters where it adds, 13,072 where it concatenates.
"""

import argparse
import dataclasses
import statistics
import time

import keras

from keras_addnorm import schemes
from keras_addnorm.data import TokenizerPair, load_translation, make_training_dataset
from keras_addnorm.layers import Projection
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy


def make_projection(hidden_dim, **arguments):
    """W and b. Weight files know the layer by the name that the plan gives it."""
    projection = Projection(hidden_dim, **arguments)
    projection.build((None, None, 2 * hidden_dim))
    return projection


@dataclasses.dataclass(frozen=True)
class ConcatenateAndProject(schemes.ResidualScheme):
    """`y = W [x; F(LN(x))] + b`, and one more norm at the end of the stack."""

    needs_final_norm = True

    def plan(self, position):
        return schemes.ResidualPlan(
            norm_slots=("pre_norm",),
            extra_layers=(schemes.ExtraLayer("merge_projection", make_projection),),
        )

    def branch_input(self, x, parts):
        return parts.pre_norm(x)

    def merge(self, residual, branch, parts):
        return parts.merge_projection(keras.ops.concatenate([residual, branch], axis=-1))


# Under a name, so that models that use it can be saved and loaded.
schemes.register("concatenate_and_project", ConcatenateAndProject)


@dataclasses.dataclass
class Contender:
    model: Seq2SeqTransformer
    losses: list = dataclasses.field(default_factory=list)
    seconds: list = dataclasses.field(default_factory=list)

    def step(self, inputs, labels):
        self.model.reset_metrics()
        started = time.perf_counter()
        logs = self.model.train_on_batch(inputs, labels, return_dict=True)
        self.losses.append(float(logs["loss"]))
        self.seconds.append(time.perf_counter() - started)


def main(smoke: bool = False) -> dict[str, Contender]:
    steps = 4 if smoke else 300
    pairs = load_translation("demo/en-de", split="train[:300]" if smoke else "train[:20000]")
    tokenizers = TokenizerPair.train(pairs, vocabulary_size=300 if smoke else 1000, kind="bpe")
    batches = make_training_dataset(
        pairs, tokenizers, shuffle_seed=1, bucket_lengths=(28,), tokens_per_batch=1024
    )

    contenders = {}
    for name, scheme in (("add", "pre_ln"), ("concatenate", ConcatenateAndProject())):
        keras.utils.set_random_seed(1)
        config = Seq2SeqConfig.preset(
            "tiny",
            source_vocabulary_size=tokenizers.source.vocabulary_size,
            target_vocabulary_size=tokenizers.target.vocabulary_size,
            num_encoder_layers=1 if smoke else 4,
            num_decoder_layers=1 if smoke else 4,
            hidden_dim=16 if smoke else 128,
            intermediate_dim=32 if smoke else 256,
            scheme=scheme,
            dropout=0.0,
            max_length=32,
            share_embeddings=True,
        )
        model = Seq2SeqTransformer(config)
        model.compile(
            keras.optimizers.Adam(1e-3, beta_2=0.98),
            MaskedSparseCategoricalCrossentropy(),
            jit_compile=True,
        )
        contenders[name] = Contender(model)

    # In turn, so that both meet the same batches and the same load of the machine.
    for inputs, labels in batches.repeat().take(steps):
        for contender in contenders.values():
            contender.step(inputs, labels)

    print(f"{'':12} {'parameters':>11} {'ms a step':>10} {'loss':>7}   (after {steps} steps)")
    for name, contender in contenders.items():
        # The first steps compile; the last quarter smooths the loss.
        milliseconds = 1000 * statistics.median(contender.seconds[3:])
        loss = statistics.mean(contender.losses[-max(1, steps // 4) :])
        print(f"{name:12} {contender.model.count_params():11,} {milliseconds:10.1f} {loss:7.3f}")
    return contenders


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="only try that it runs")
    main(parser.parse_args().smoke)
