"""One frozen configuration of a block: declared once, checked once, handed down by stacks."""

import dataclasses
import inspect

import keras
import numpy as np
import pytest

from keras_addnorm import layers
from keras_addnorm.layers import AttentionConfig, BlockConfig
from keras_addnorm.models import Seq2SeqConfig, Seq2SeqTransformer
from keras_addnorm.schemes import LayerScale, PreLN

LAYERS = (layers.TransformerEncoderLayer, layers.TransformerDecoderLayer)
STACKS = (layers.TransformerEncoder, layers.TransformerDecoder)
KERAS = ["name", "dtype", "trainable", "activity_regularizer", "autocast"]
FIELDS = {field.name: field.default for field in dataclasses.fields(BlockConfig)}
SIZES = {"num_heads": 2, "intermediate_dim": 7}
MODEL = {"source_vocabulary_size": 11, "target_vocabulary_size": 13, "hidden_dim": 6, **SIZES}

CHANGED = {
    "num_heads": 3,
    "intermediate_dim": 5,
    "dropout": 0.1,
    "attention_dropout": 0.2,
    "activation_dropout": 0.3,
    "activation": "swiglu",
    "scheme": LayerScale(initial_value=0.5),
    "norm": {"encoder": "batch_norm", "decoder": "rms_norm"},
    "epsilon": 1e-3,
    "use_bias": False,
    "kernel_initializer": keras.initializers.RandomNormal(stddev=0.3),
    "bias_initializer": "ones",
    "attention": AttentionConfig(sink="learned", num_key_value_heads=1),
    "positions": {"name": "sinusoidal", "offset": 2},
    "drop_path": 0.4,
    "head_dim": 4,
    "self_attention": {"name": "average_attention", "intermediate_dim": 3},
}


def changed(side):
    """What one side of a model takes of all that is changed."""
    return vars(BlockConfig(**CHANGED).for_side(side))


class Halves(keras.initializers.Initializer):
    """Not registered: Keras cannot find it by a name."""

    def __call__(self, shape, dtype=None):
        return keras.ops.full(shape, 0.5, dtype)


class Mine(PreLN):
    """Not registered either."""


LAST = {
    LAYERS: ["position", "pruned_sublayers"],
    STACKS: ["num_other_layers", "pruned_sublayers", "gradient_checkpointing"],
}


@pytest.mark.parametrize("classes", LAST)
def test_the_signature_shows_every_argument(classes):
    for cls in classes:
        parameters = inspect.signature(cls).parameters
        first = ["num_layers"] if classes is STACKS else []
        assert list(parameters) == [*first, *FIELDS, *LAST[classes], *KERAS]
        for name, default in FIELDS.items():
            expected = inspect.Parameter.empty if default is dataclasses.MISSING else default
            assert parameters[name].default == expected, name


@pytest.mark.parametrize("cls", [*LAYERS[:1], *STACKS[:1], BlockConfig, Seq2SeqConfig])
def test_every_argument_is_documented(cls):
    for name in FIELDS:
        assert cls.__doc__.count(f"\n    {name}: ") + cls.__doc__.count(f"\n        {name}: ") == 1


@pytest.mark.parametrize("cls", [*LAYERS, *STACKS, BlockConfig, Seq2SeqConfig])
def test_an_unknown_argument_is_named(cls):
    sizes = {Seq2SeqConfig: MODEL}.get(cls, SIZES)
    message = rf"^{cls.__name__} has no argument 'schema'\. Did you mean 'scheme'\? Expected .*norm"
    with pytest.raises(TypeError, match=message):
        cls(**sizes, schema="pre_ln")
    with pytest.raises(TypeError, match=rf"^{cls.__name__} has no argument 'qqq'\. Expected"):
        cls(**sizes, qqq=1)
    with pytest.raises(TypeError, match=f"^The arguments of {cls.__name__} do not fit: missing a"):
        cls()
    with pytest.raises(
        TypeError, match=rf"^{cls.__name__} takes its .*arguments by name.*num_heads"
    ):
        cls(*range(7))


def test_a_replaced_field_is_checked_too():
    config = BlockConfig(**SIZES)
    assert dataclasses.replace(config, dropout=0.3) == BlockConfig(**SIZES, dropout=0.3)
    with pytest.raises(TypeError, match=r"no argument 'dropot'\. Did you mean 'dropout'\?"):
        dataclasses.replace(config, dropot=0.3)
    with pytest.raises(ValueError, match="dropout is a share"):
        dataclasses.replace(config, dropout=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.dropout = 0.3


def test_the_changes_cover_every_field():
    assert CHANGED.keys() == FIELDS.keys(), "a new field: add it above"
    assert not [name for name, value in CHANGED.items() if value == FIELDS[name]]


def test_a_config_compares_hashes_and_is_written_as_plain_values():
    config, same = BlockConfig(**CHANGED), BlockConfig(**CHANGED)
    assert config == same and hash(config) == hash(same)
    assert BlockConfig.get(config.to_dict()) == config == BlockConfig.get(config)
    assert config.to_dict() == {
        **CHANGED,
        "scheme": {"name": "layer_scale", "initial_value": 0.5},
        "kernel_initializer": keras.initializers.serialize(CHANGED["kernel_initializer"]),
        "attention": CHANGED["attention"].to_dict(),
    }
    for name, default in FIELDS.items():
        other = dataclasses.replace(config, **{name: SIZES.get(name, default)})
        assert other != config, name


@pytest.mark.parametrize("cls", [*LAYERS, *STACKS])
def test_layers_keep_their_config_over_saving(cls, tmp_path):
    depth = {"num_layers": 2} if cls in STACKS else {}
    layer = cls(**changed(cls.side), **depth)
    assert layer.config == BlockConfig(**CHANGED).for_side(cls.side)
    assert cls.from_config(layer.get_config()).config == layer.config

    x = keras.Input((None, 6))
    keras.Model(x, layer(x)).save(tmp_path / "m.keras")
    reloaded = keras.saving.load_model(tmp_path / "m.keras").layers[1]
    assert type(reloaded) is cls
    assert reloaded.config == layer.config
    assert reloaded.get_config() == layer.get_config()


def test_fields_are_attributes_of_the_layer():
    layer = layers.TransformerDecoderLayer(**CHANGED)
    objects = {
        **CHANGED,
        "norm": "rms_norm",
        "kernel_initializer": layer.kernel_initializer,
        "bias_initializer": layer.bias_initializer,
    }
    del objects["self_attention"]  # The attribute of this name is the sublayer.
    assert {name: getattr(layer, name) for name in objects} == objects
    assert layer.config.self_attention == CHANGED["self_attention"]
    assert layer.kernel_initializer.stddev == 0.3
    assert isinstance(layer.bias_initializer, keras.initializers.Ones)


@pytest.mark.parametrize("stack_class", STACKS)
def test_a_stack_hands_its_config_to_every_layer(stack_class):
    stack = stack_class(3, **changed(stack_class.side))
    stack.build((2, 5, 6))
    rates = [layer.config.drop_path for layer in stack.layers]
    np.testing.assert_allclose(rates, [0.4 / 3, 0.8 / 3, 0.4])
    for layer in stack.layers:
        assert dataclasses.replace(layer.config, drop_path=0.4) == stack.config

    plain = stack_class(2, **SIZES)
    plain.build((2, 5, 6))
    assert [layer.config for layer in plain.layers] == 2 * [plain.config]


def test_a_model_hands_its_config_to_both_stacks():
    config = Seq2SeqConfig(**{**MODEL, **CHANGED}, num_encoder_layers=1, num_decoder_layers=2)
    model = Seq2SeqTransformer(config)
    assert model.decoder.config == config.block == BlockConfig(**CHANGED)
    assert model.encoder.config == config.for_side("encoder") != config.block
    assert hash(config) == hash(dataclasses.replace(config))
    biases = [w.path for w in model.weights if w.path.endswith("bias")]
    assert not biases


def test_classes_that_are_not_registered_work_until_they_are_saved():
    layer = layers.TransformerEncoderLayer(
        **SIZES, scheme=Mine(), kernel_initializer=Halves(), name="layer"
    )
    layer.build((2, 5, 6))
    assert layer.scheme == Mine()
    kernel = keras.ops.convert_to_numpy(layer.feed_forward.intermediate_projection.kernel)
    np.testing.assert_array_equal(kernel, np.full((6, 7), 0.5, "float32"))
    with pytest.raises(ValueError, match="cannot be saved, because its class is not in the table"):
        layer.get_config()
    with pytest.raises(ValueError, match="cannot be saved, because its class is not in the table"):
        Seq2SeqConfig(**MODEL, scheme=Mine())
