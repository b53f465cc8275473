"""Fine-tuning: a translation model that knows how people travel learns how they shop.

The two domains are kinds of sentences of the built-in set, without a sentence in common. A first
model is trained on sentences about travel. It is then fine-tuned on fewer sentences about shopping:
once on shopping alone, once on shopping and as many travel sentences. Every model is tested on both
domains, so that the table shows what is learned and what is forgotten.

python examples/fine_tune.py            # about five minutes of processor time
python examples/fine_tune.py --smoke    # only tries that it runs

Measured on two cores that were busy with other work, 218,880 parameters, 43,776 trained with
LoRA, 100 sentences of each domain to test with:

    trained on                  travel: loss, exact   shopping: loss, exact
    travel                            0.003  100.0%           9.811    0.0%
    then shopping                     2.182    0.0%           0.312   30.0%
    then shopping, travel             0.001  100.0%           0.130   68.0%
    the same, with LoRA               0.013   98.0%           0.295   19.0%
    and in int8                       0.012   98.0%           0.296   19.0%

Shopping alone drives out travelling; mixed with old sentences nothing is lost, and the new domain
is learned better, too (from twice as many steps). LoRA, which trains a fifth as many numbers beside
the frozen weights, learns less of it in the same number of steps; int8 changes nothing that counts.
"""

import argparse
import dataclasses
import math

import keras

from keras_addnorm.data import TokenizerPair, demo_pairs, make_training_dataset
from keras_addnorm.data.demo import split_of
from keras_addnorm.decoding import translate
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer, enable_lora, merge_lora
from keras_addnorm.training import MaskedSparseCategoricalCrossentropy

DOMAINS = {
    "travel": ("departure", "journey", "opening", "visit"),
    "shopping": ("knowledge", "payment", "price", "reason", "shopping"),
}
MAX_LENGTH = 40
RANK = 8

Pairs = list[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Domain:
    """Sentence pairs of one domain."""

    train: Pairs
    test: Pairs

    @classmethod
    def collect(cls, templates: tuple[str, ...], num_train: int, num_test: int) -> "Domain":
        """Take the first pairs of these kinds; the set itself says which are to test with."""
        domain = cls([], [])
        for pair in demo_pairs("de", seed=1):
            split = split_of(pair.source)
            wanted, size = (domain.test, num_test) if split == "test" else (domain.train, num_train)
            if pair.template in templates and split != "validation" and len(wanted) < size:
                wanted.append((pair.source, pair.target))
            if len(domain.train) == num_train and len(domain.test) == num_test:
                return domain
        raise AssertionError("the built-in set has no end")


@dataclasses.dataclass(frozen=True)
class Score:
    loss: float
    exact_match: float


@dataclasses.dataclass(frozen=True)
class Trainer:
    """What the three trainings share."""

    tokenizers: TokenizerPair
    domains: dict[str, Domain]
    smoke: bool

    def batches(self, pairs: Pairs, shuffle_seed: int | None = None):
        return make_training_dataset(
            pairs,
            self.tokenizers,
            shuffle_seed=shuffle_seed,
            bucket_lengths=(MAX_LENGTH,),
            tokens_per_batch=1024,
        )

    def fit(self, model: keras.Model, pairs: Pairs, epochs: int, peak: float) -> None:
        batches = self.batches(pairs, shuffle_seed=1)
        steps = epochs * len(batches)
        rate = keras.optimizers.schedules.CosineDecay(
            0.0, steps, warmup_target=peak, warmup_steps=steps // 10
        )
        model.compile(
            keras.optimizers.Adam(rate, beta_2=0.98),
            MaskedSparseCategoricalCrossentropy(),
            jit_compile=False,  # compiling three times would take longer than it saves
        )
        model.fit(batches, epochs=epochs, shuffle=False, verbose=2)

    def score(self, model: keras.Model) -> dict[str, Score]:
        """Loss and share of exact translations of each domain's test sentences."""
        scores = {}
        for name, domain in self.domains.items():
            sources, references = zip(*domain.test, strict=True)
            translations = translate(
                model, self.tokenizers, sources, batch_size=100, jit_compile=not self.smoke
            )
            right = sum(map(str.__eq__, translations.texts, references))
            loss = model.evaluate(self.batches(domain.test), verbose=0)
            scores[name] = Score(loss, right / len(references))
        return scores


def main(smoke: bool = False) -> dict[str, dict[str, Score]]:
    keras.utils.set_random_seed(1)
    sizes = {"travel": 400, "shopping": 100} if smoke else {"travel": 2000, "shopping": 800}
    domains = {
        name: Domain.collect(templates, sizes[name], 10 if smoke else 100)
        for name, templates in DOMAINS.items()
    }
    travel, shopping = domains["travel"].train, domains["shopping"].train

    # The vocabulary stays when the domain changes, so it has to know the words of both.
    tokenizers = TokenizerPair.train(
        [*travel, *shopping], vocabulary_size=300 if smoke else 800, kind="bpe"
    )
    trainer = Trainer(tokenizers, domains, smoke)
    config = Seq2SeqConfig.preset(
        "tiny",
        source_vocabulary_size=tokenizers.source.vocabulary_size,
        target_vocabulary_size=tokenizers.target.vocabulary_size,
        num_encoder_layers=1 if smoke else 2,
        num_decoder_layers=1 if smoke else 2,
        hidden_dim=16 if smoke else 64,
        intermediate_dim=32 if smoke else 128,
        scheme="pre_ln",
        dropout=0.0,
        max_length=MAX_LENGTH,
        share_embeddings=True,
    )
    model = Seq2SeqTransformer(config)

    trainer.fit(model, travel, epochs=2 if smoke else 4, peak=0.006)
    results = {"travel": trainer.score(model)}
    trained = model.get_weights()
    both = [*shopping, *travel[: len(shopping)]]
    # Fine-tuning is `fit` with other data and a lower rate; nothing is frozen.
    for name, pairs in (
        ("then shopping", shopping),
        ("then shopping, travel", both),
    ):
        model.set_weights(trained)
        trainer.fit(model, pairs, epochs=2 if smoke else 8, peak=0.003)
        results[name] = trainer.score(model)
    # Two matrices beside each kernel and each table; all other weights are frozen.
    model.set_weights(trained)
    enable_lora(model, RANK)
    num_trainable = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    trainer.fit(model, both, epochs=2 if smoke else 8, peak=0.01)
    results["the same, with LoRA"] = trainer.score(model)
    # Keras' own whole numbers: merge what LoRA has learned, then quantise.
    model = merge_lora(model)
    model.quantize("int8")
    model.compile(loss=MaskedSparseCategoricalCrossentropy(), jit_compile=False)
    results["and in int8"] = trainer.score(model)

    print(
        f"{sum(weight.size for weight in trained):,} parameters, {num_trainable:,} with LoRA; "
        f"{len(travel):,} and {len(shopping):,} sentences"
    )
    print(f"{'trained on':23}" + "".join(f"{name + ': loss, exact':>24}" for name in domains))
    for name, scores in results.items():
        cells = (f"{score.loss:16.3f}{score.exact_match:8.1%}" for score in scores.values())
        print(f"{name:23}" + "".join(cells))
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="only try that it runs")
    main(parser.parse_args().smoke)
