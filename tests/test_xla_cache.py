"""The folder of compiled programs does not grow without end, and TensorFlow is told of it."""

import os

import xla_cache


def test_only_the_newest_programs_are_kept(tmp_path):
    for age, name in enumerate("dcba"):
        (tmp_path / name).write_bytes(b"1234")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    xla_cache.keep_newest(tmp_path, 16)
    assert {file.name for file in tmp_path.iterdir()} == {*"abcd"}
    xla_cache.keep_newest(tmp_path, 11)
    assert {file.name for file in tmp_path.iterdir()} == {*"dc"}


def test_the_flags_name_a_folder_of_pytests_cache(tmp_path, monkeypatch):
    class Cache:
        def mkdir(self, name):
            (tmp_path / name).mkdir()
            (tmp_path / name / "program").write_bytes(b"12345678")
            return tmp_path / name

    monkeypatch.setattr(xla_cache, "NUM_BYTES", 7)
    flags = dict(flag.split("=") for flag in xla_cache.flags(Cache()).split())
    (folder,) = tmp_path.iterdir()
    assert flags == {
        "--tf_xla_persistent_cache_directory": str(folder),
        "--tf_xla_persistent_cache_device_types": "CPU",
    }
    assert not list(folder.iterdir())
