"""What an export writes beside the graph."""

import ast
import json
from pathlib import Path

import pretrained_vocabularies
import pytest
import tensorflow as tf
from exported import make_model, make_tokenizers
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from keras_addnorm.data import TextFormat, TokenizerPair
from keras_addnorm.serving import assets_extra
from keras_addnorm.serving.assets_extra import FOLDER, text_of, write_extras
from keras_addnorm.serving.graph_text_format import LANGUAGE_INPUTS
from keras_addnorm.serving.request_batches import Buckets
from keras_addnorm.serving.text_encoder import TEXTS

ROWS = (1, 4, 12)


@pytest.fixture
def write(texts, tmp_path):
    def write(place, *names):
        """Writes the extras of a version whose signatures have these names."""
        function = tf.function(lambda texts: {"translations": texts}, [TEXTS])
        signatures = dict.fromkeys(["serving_default", *names], function.get_concrete_function())
        write_extras(
            *(tmp_path, place, make_model(101, 89), make_tokenizers(texts), signatures),
            *(
                Buckets(ROWS, (5, 11)),
                {"decoding": {"shortlist": None, "splitting": {"name": "none"}}},
            ),
            {},
        )
        return tmp_path / FOLDER

    return write


def batching_parameters():
    """The message as TensorFlow Serving defines it; its Python package leaves it out.

    tensorflow_serving/servables/tensorflow/session_bundle_config.proto
    """
    file = descriptor_pb2.FileDescriptorProto(name="batching.proto", syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    message = file.message_type.add(name="BatchingParameters")
    numbers = "max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads"
    for number, name in enumerate(numbers, 1):
        message.field.add(
            name=name, number=number, label=1, type=11, type_name=".google.protobuf.Int64Value"
        )
    message.field.add(name="allowed_batch_sizes", number=6, label=3, type=3)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("BatchingParameters"))()


def test_the_settings_are_what_tensorflow_serving_reads(write, tmp_path):
    extras = write(tmp_path / "mine" / "3", "translate")
    text = (extras / "models.config").read_text("utf-8")
    models = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    (model,) = models.model_config_list.config
    assert (model.name, model.base_path) == ("mine", "/models/mine")
    assert model.model_platform == "tensorflow"

    text = (extras / "batching.config").read_text("utf-8")
    batching = text_format.Parse(text, batching_parameters())
    assert list(batching.allowed_batch_sizes) == list(ROWS)
    assert batching.max_batch_size.value == ROWS[-1], "the server wants the last allowed size"
    assert batching.batch_timeout_micros.value > 0 and batching.max_enqueued_batches.value > 0
    assert batching.num_batch_threads.value > 0
    readme = (extras / "README.md").read_text("utf-8")
    assert f"refuses a request of\nmore than {ROWS[-1]} texts" in readme
    assert '-v "$PWD/mine:/models/mine:ro"' in readme and "/models/mine/3/" in readme


def test_the_readme_names_no_signature_that_is_not_there(write, tmp_path):
    readme = (write(tmp_path / "mine" / "1", "quick", "quick_xla") / "README.md").read_text("utf-8")
    assert "| `quick_xla` | `texts`: string [?] |" in readme
    assert "ends in `_xla`" in readme and "translate_xla" not in readme


def test_languages_stand_in_the_readme_and_in_the_warm_up(tmp_path):
    tokenizer = pretrained_vocabularies.FAMILIES["nllb"]()
    around = TextFormat(source_prefix=("{source}",), target_prefix=("{target}",))
    pair = TokenizerPair(tokenizer, tokenizer, around)
    specs = [
        tf.TensorSpec([None], tf.string, name) for name in ("texts", *LANGUAGE_INPUTS.values())
    ]

    def translate(texts, source_language, target_language):
        return {"translations": texts}

    size = tokenizer.vocabulary_size
    write_extras(
        *(tmp_path, tmp_path / "mine" / "1", make_model(size, size, pad_id=1, start_id=2), pair),
        {"serving_default": tf.function(translate, specs).get_concrete_function()},
        Buckets(ROWS, (5, 11)),
        {"decoding": {"shortlist": None, "splitting": {"name": "none"}}},
        {},
        {"source_language": "eng_Latn", "target_language": "deu_Latn"},
    )
    extras = tmp_path / FOLDER
    readme = (extras / "README.md").read_text("utf-8")
    assert "more than 9 tokens is cut" in readme  # of 11, a language and the end
    languages = '"source_language": "eng_Latn", "target_language": "deu_Latn"'
    assert f'{{"instances": [{{"texts": "a text", {languages}}}]}}' in readme
    assert '(["a text"], source_language="eng_Latn", target_language="deu_Latn")' in readme
    assert 'inputs["target_language"].CopyFrom(tf.make_tensor_proto(["deu_Latn"]))' in readme
    card = json.loads((extras / "model.json").read_text("utf-8"))
    assert card["languages"] == {key: ["eng_Latn", "deu_Latn"] for key in ("source", "target")}
    found = set()
    records = tf.data.TFRecordDataset(str(extras / "tf_serving_warmup_requests"))
    for record in records.as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        values = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
        assert set(values["target_language"]) == {b"deu_Latn"}
        found.add((len(values["texts"]), len(tokenizer.encode(values["texts"][0].decode()))))
    assert found == {(rows, columns - 2) for rows in ROWS for columns in (5, 11)}


def test_a_language_of_a_vocabulary_is_no_code_in_the_readme():
    language = """de"]); quit() #'; rm -r . #`\n"""
    found = assets_extra._example({"target_language": language})
    called = ast.parse(f"f(['a text']{found['arguments']})", mode="eval").body
    assert [ast.literal_eval(one.value) for one in called.keywords] == [language]
    assert ast.literal_eval(found["requested"].partition("proto([")[2].rstrip(")\n]")) == language
    assert "'" not in found["instance"]
    assert json.loads(found["instance"])["target_language"] == language
    assert assets_extra._in_line(language) == """`de"]); quit() #'; rm -r . #\\n`"""


@pytest.mark.parametrize("name", ["byt5", "bart", "nllb"])
def test_texts_of_a_warm_up_have_the_tokens_of_their_bucket(name):
    tokenizer = pretrained_vocabularies.FAMILIES[name]()
    counts = 1, 2, 15, 63
    assert [len(tokenizer.encode(text_of(tokenizer, count))) for count in counts] == list(counts)


def test_an_export_into_the_current_folder_has_its_name(write, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    extras = write(Path() / "1", "translate")
    assert 'name: "mine"' in (extras / "models.config").read_text("utf-8")
