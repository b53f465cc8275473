"""One part of the trainings that `test_several_devices.py` compares; run as a program.

`devices_training.py PART CORPUS FOLDER`; the backend and the processes are the environment's.
"""

import json
import sys
from pathlib import Path

from keras_addnorm.runs import RunConfig, RunDirectory, UserError


def config(corpus, **training):
    return RunConfig.from_dict(
        {
            "data": str(corpus),
            "tokenizer": {"vocabulary_size": 44},
            "model": {
                "num_encoder_layers": 1,
                "num_decoder_layers": 1,
                "hidden_dim": 16,
                "intermediate_dim": 24,
                "num_heads": 8,
                "dropout": 0.1,
                "max_length": 13,
                "scheme": "pre_ln",
            },
            "training": {
                "epochs": 5,
                "tokens_per_batch": 13 * 13,
                "rows_multiple_of": 4,
                "bucket_lengths": [13],
                "warmup_steps": 3,
                "checkpoint_batches": 3,
                "keep_last": 5,
                **training,
            },
        }
    )


def refusal(corpus, folder, **settings):
    from keras_addnorm.runs.train import train

    try:
        train(
            config(corpus, epochs=1).replace(settings), RunDirectory(folder), say=print, verbose=0
        )
    except UserError as error:
        return str(error)
    return "nothing was refused"


def several_processes(corpus, folder):
    """Four epochs with two processes of two devices each; this is one of them."""
    from keras_addnorm import distribution
    from keras_addnorm.runs.process_startup import prepare_for_training
    from keras_addnorm.runs.train import train

    prepare_for_training()
    said = []
    train(
        config(corpus, epochs=4, distribution="model"),
        RunDirectory(folder / "together"),
        say=said.append,
        verbose=0,
    )
    refused = refusal(corpus, folder / "refused", **{"training.distribution": "none"})
    return {"said": said, "place": distribution.process_index(), "refused": refused}


def one_process(corpus, folder):
    """The same on one device, the fifth epoch of both, and what cannot be."""
    from keras_addnorm.runs.train import train

    train(config(corpus), RunDirectory(folder / "alone"), say=lambda line: None, verbose=0)
    sharded = []
    for settings in ({"epochs": 1, "distribution": "fsdp"}, {"epochs": 2}):
        train(
            config(corpus, **settings),
            RunDirectory(folder / "sharded"),
            say=sharded.append,
            verbose=0,
        )
    said = []
    train(
        config(corpus, distribution="data"),
        RunDirectory(folder / "together"),
        say=said.append,
        verbose=0,
    )
    model = {"training.distribution": "model"}
    return {
        "said": said,
        "sharded": sharded,
        "heads": refusal(corpus, folder / "heads", **model, **{"model.num_heads": 1}),
        "rows": refusal(
            corpus,
            folder / "rows",
            **{"training.distribution": "data", "training.rows_multiple_of": 1},
        ),
        "devices": refusal(
            corpus, folder / "devices", **model, **{"training.devices_per_model": 3}
        ),
        "monitor": refusal(corpus, folder / "monitor", **model, **{"training.monitor_every": 1}),
    }


def mirrored(corpus, folder):
    """TensorFlow: one device, then two logical ones, stopped and gone on with."""
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    logical = tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [logical, logical])

    from keras_addnorm.runs.train import train

    settings = {"schedule": "constant", "peak_learning_rate": 1e-3, "epsilon": 1e-3, "ema": 0.5}
    settings |= {"jit_compile": False}
    # The target's table is tied to the projection. The source's is neither tied nor shared, so that
    # its gradient is purely sparse (keras#21069).
    model = {"model.dropout": 0.0, "model.share_embeddings": False}

    def go(name, **more):
        said = []
        chosen = config(corpus, **{**settings, **more}).replace(model)
        train(chosen, RunDirectory(folder / name), say=said.append, verbose=0)
        return said

    go("one", epochs=2)
    go("two", epochs=1, distribution="data")
    said = go("two", epochs=2, distribution="data", jit_compile=True)
    data = {"training.distribution": "data"}
    return {
        "said": said,
        "accumulation": refusal(
            corpus, folder / "sums", **data, **{"training.batches_per_update": 2}
        ),
        "model": refusal(corpus, folder / "model", **{"training.distribution": "model"}),
    }


if __name__ == "__main__":
    part, corpus, folder = sys.argv[1:]
    print(json.dumps(globals()[part](Path(corpus), Path(folder))))
