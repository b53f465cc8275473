"""Numbers that size lists, loops and arrays have a bound, before anything is made of them."""

import pytest

from keras_addnorm.decoding import Beam, Sample, Search
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer, enable_lora
from keras_addnorm.models.lora import lora_layers

VOCABULARIES = {"source_vocabulary_size": 11, "target_vocabulary_size": 13}
STREAMS = ["hyper_connections", "frac_connections", "mhc"]


@pytest.mark.parametrize("scheme", STREAMS)
def test_streams(scheme):
    with pytest.raises(ValueError, match=r"num_streams >= 1 and <= 100\. Received: 101"):
        Seq2SeqConfig(**VOCABULARIES, scheme={"name": scheme, "num_streams": 101})
    with pytest.raises(ValueError, match=r"num_streams >= 1\. Received: 0"):
        Seq2SeqConfig(**VOCABULARIES, scheme={"name": scheme, "num_streams": 0})


def test_layers_and_positions():
    for name, most in (("num_encoder_layers", 10_000), ("max_length", 1 << 20)):
        with pytest.raises(ValueError, match=f"{name} has to be at most {most}"):
            Seq2SeqConfig(**VOCABULARIES, **{name: most + 1})
    assert Seq2SeqConfig(**VOCABULARIES, max_length=1 << 20).max_length == 1 << 20


def test_searches():
    for make in (lambda: Search(num_beams=1001), lambda: Beam(1001)):
        with pytest.raises(ValueError, match=r">= 1 and <= 1000. Received: 1001"):
            make()
    with pytest.raises(ValueError, match=r">= 1 and <= 10000. Received: 10001"):
        Sample(num_return=10_001)
    with pytest.raises(ValueError, match=r"max_length >= 1 and <= 1048576. Received: 1048577"):
        Search(max_length=(1 << 20) + 1)
    assert Beam(1000).num_beams == 1000


def test_lora_is_narrower_than_what_it_changes():
    config = Seq2SeqConfig.preset(
        "micro", hidden_dim=8, intermediate_dim=24, num_encoder_layers=1, num_decoder_layers=1
    )
    model = Seq2SeqTransformer(config)
    with pytest.raises(ValueError, match=r"rank <= 8, the side of the largest kernel.*Received: 9"):
        enable_lora(model, 9, filters="query")
    assert not lora_layers(model)
    enable_lora(model, 8, filters="query")
    assert lora_layers(model)
