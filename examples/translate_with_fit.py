"""From sentence pairs to translations on one page: load, tokenise, compile, fit, translate.

python examples/translate_with_fit.py            # some minutes on two cores
python examples/translate_with_fit.py --smoke    # only tries that it runs
"""

import argparse

import keras

from keras_addnorm.data import TokenizerPair, load_translation, make_training_dataset
from keras_addnorm.decoding import translate
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.training import MaskedAccuracy, MaskedSparseCategoricalCrossentropy

SENTENCES = [
    "Sophie was born in Italy on January 28, 1995.",
    "On Thursday, August 30, the museum opens at 4:40 PM.",
]


def main(smoke: bool) -> list[str]:
    keras.utils.set_random_seed(1)

    # Sentence pairs: a TFDS name, a folder of parallel text, or the built-in set.
    train = load_translation("demo/en-de", split="train[:300]" if smoke else "train")
    validation = load_translation("demo/en-de", split="validation[:50]")

    # One sub-word vocabulary for both languages, and batches of few shapes.
    tokenizers = TokenizerPair.train(train, vocabulary_size=300 if smoke else 1000, kind="bpe")
    buckets = {"bucket_lengths": (48,) if smoke else (16, 28), "tokens_per_batch": 2048}
    train_batches = make_training_dataset(train, tokenizers, shuffle_seed=1, **buckets)
    validation_batches = make_training_dataset(validation, tokenizers, **buckets)
    print(train_batches.report)

    # The model. Another `scheme` is another Add & Norm, and nothing else changes.
    config = Seq2SeqConfig.preset(
        "tiny",
        source_vocabulary_size=tokenizers.source.vocabulary_size,
        target_vocabulary_size=tokenizers.target.vocabulary_size,
        num_encoder_layers=1 if smoke else 2,
        num_decoder_layers=1 if smoke else 2,
        hidden_dim=16 if smoke else 128,
        scheme="pre_ln",
        dropout=0.0,
        max_length=48,
        share_embeddings=True,
    )
    model = Seq2SeqTransformer(config)

    # Plain Keras from here on.
    epochs = 1 if smoke else 4
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, epochs * len(train_batches), warmup_target=0.004, warmup_steps=200
    )
    model.compile(
        optimizer=keras.optimizers.Adam(rate, beta_2=0.98, epsilon=1e-9),
        loss=MaskedSparseCategoricalCrossentropy(),
        metrics=[MaskedAccuracy()],
        jit_compile=True,
    )
    model.fit(
        train_batches,
        validation_data=validation_batches,
        epochs=epochs,
        shuffle=False,
        verbose=2,
    )

    translations = translate(model, tokenizers, SENTENCES).texts
    for source, translation in zip(SENTENCES, translations, strict=True):
        print(f"{source}\n  {translation}")
    return translations


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="only try that it runs")
    main(parser.parse_args().smoke)
