"""Checkpoints of TensorFlow: which one of a folder is read."""

import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.interop.tensor_files.tensorflow_checkpoint import read_tensorflow_checkpoint


def test_the_newest_is_one_of_the_folder_wherever_its_file_leads(tmp_path):
    """Also of a folder that was moved, whose file has the path that it had."""
    checkpoint = tf.train.Checkpoint(v=tf.Variable([2.0, 3.0]))
    checkpoint.save(str(tmp_path / "other" / "ckpt"))
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for place in ("../other/ckpt-1", str(tmp_path / "other" / "ckpt-1")):
        (folder / "checkpoint").write_text(f'model_checkpoint_path: "{place}"\n')
        with pytest.raises(FileNotFoundError, match="no checkpoint of TensorFlow at"):
            read_tensorflow_checkpoint(folder)
    for file in (tmp_path / "other").glob("ckpt-1.*"):
        file.rename(folder / file.name)
    found = read_tensorflow_checkpoint(folder)
    np.testing.assert_array_equal(found["v"].read(), [2.0, 3.0])
