"""Language tokens, tasks and leading pieces: Python and an export agree."""

import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.data import PieceIds, TextFormat, Tokenizer, TokenizerPair, sentencepiece_pieces
from keras_addnorm.decoding import translate
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.serving import load_translator
from keras_addnorm.serving.export import export_saved_model
from keras_addnorm.serving.text_encoder import TextEncoder
from keras_addnorm.decoding import Sentences

TEXTS = [
    "the small dog. a cat runs!",
    "",
    "old men",
    ">>en_XX<< the dog. a cat",
    ">>de_DE<< a dog ",
    ">>xx<<the cat",
    ">>de_DE",
    " >>de_DE<< a",
    "a very small old dog and a very old small cat run and run and run",
]
CORPUS = ["the small dog runs", "a small cat", "two old men run", "and very old dogs run. a!"] * 3


def tokenizer(**special):
    model = Tokenizer.train(CORPUS, vocabulary_size=28).proto
    ids = PieceIds.around(
        sentencepiece_pieces(model),
        first=("<s>", "<pad>", "</s>", "<unk>"),
        last=("en_XX", "de_DE", ">>en_XX<<", ">>de_DE<<"),
        **{"start": "</s>", **special},
    )
    return Tokenizer.from_sentencepiece(model, ids.filled_up_to(40))


FORMATS = {
    "nllb": TextFormat(source_prefix=("{source}",), target_prefix=("{target}",)),
    "mbart": TextFormat(source_suffix=("{end}", "{source}")),
    "bart": TextFormat(source_prefix=("<s>",), target_prefix=("<s>", "en_XX")),
    "t5": TextFormat(text_prefix="small men: "),
    "marian": TextFormat(source_prefix=(">>{target}<<",), leading_piece=(">>", "<<")),
    "none": TextFormat(source_suffix=()),
}


@pytest.mark.parametrize("name", FORMATS)
def test_rows_are_the_same_in_a_graph(name):
    from keras_addnorm.decoding.text_segments import make_segments

    own = tokenizer()
    pair = TokenizerPair(own, own, FORMATS[name])
    encoder = TextEncoder(pair, 20, 12, Sentences())
    read = {"source": "en_XX", "target": "de_DE"}
    inputs = {side: read[side] for side in encoder.text_format.source_languages}
    languages = {side: tf.constant([name] * len(TEXTS)) for side, name in inputs.items()}
    _, rows = encoder.segments(tf.constant(TEXTS), languages)
    found = [[token for token in row if token != own.pad_id] for row in rows.numpy().tolist()]
    known = {side: read[side] for side in pair.text_format.target_languages} | inputs
    pair = pair.with_languages(**known)
    config = Seq2SeqConfig.preset(
        "tiny", source_vocabulary_size=40, target_vocabulary_size=40, max_length=20
    )
    assert found == make_segments(TEXTS, own, "sentences", config, pair.bound_format).rows
    assert max(map(len, found)) <= 20
