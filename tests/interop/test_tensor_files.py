"""Files of weights: read as safetensors, torch and NumPy wrote them, without either's help."""

import argparse
import json
import os
import pickle
import tracemalloc
import types
import warnings
import zipfile

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from counted_comparisons import counting

from keras_addnorm.interop.families.rows import Row, WeightTable
from keras_addnorm.interop.tensor_files import (
    DamagedFileError,
    StoredTensor,
    find_tensors,
    read_npz,
    read_safetensors,
    read_tensors,
    read_torch,
    stored_tensor,
    write_safetensors,
)
from keras_addnorm.interop.tensor_files import torch_zip as reader_of_torch

RNG = np.random.default_rng(0)
ARRAYS = {
    "a.weight": RNG.normal(size=(3, 5)).astype("float32"),
    "b": RNG.normal(size=(7,)).astype("float32"),
    "scalar": np.array(2.5, "float32"),
    "none": np.zeros((0, 4), "float32"),
}


def torch_tensors():
    """Tensors of several types; a view with strides, and two names of the same numbers."""
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    return {
        **{name: torch.from_numpy(array.copy()) for name, array in ARRAYS.items()},
        "half": base.half() / 7,
        "bfloat16": (base / 7).bfloat16(),
        "double": base.double() / 3,
        "whole": torch.arange(4),
        "transposed": base.T,
        "rows": base[1:, ::2],
        "alias": base,
    }


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].shape == tuple(tensor.shape), name
        np.testing.assert_array_equal(found[name].floats(), tensor.float().numpy(), err_msg=name)


def test_safetensors_are_those_of_the_package(tmp_path):
    tensors = {name: each.contiguous().clone() for name, each in torch_tensors().items()}
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert_equal(read_safetensors(tmp_path / "model.safetensors"), tensors)
    assert_equal(find_tensors(tmp_path), tensors)


def test_numbers_of_half_precision_are_read_in_parts(tmp_path, monkeypatch):
    """No array of all of them is made beside the one in float32."""
    tensors = {name: each.contiguous().clone() for name, each in torch_tensors().items()}
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(tensors, path)
    found = read_safetensors(path)
    monkeypatch.setattr(stored_tensor, "_NUMBERS_AT_ONCE", 5)  # Of 12: the last part is shorter.
    monkeypatch.delattr(StoredTensor, "read")
    half = {name: found[name] for name in ("half", "bfloat16", "double")}
    assert_equal(half, {name: tensors[name] for name in half})
    last = max(half.values(), key=lambda tensor: tensor.offset)
    os.truncate(path, last.end - 1)
    with pytest.raises(DamagedFileError, match="has become shorter since it was opened"):
        last.floats()


def test_what_is_written_is_read_by_the_package(tmp_path):
    path = tmp_path / "model.safetensors"
    shapes = {name: array.shape for name, array in ARRAYS.items()}
    write_safetensors(path, shapes, ARRAYS.__getitem__)
    found = safetensors.numpy.load_file(path)
    assert found.keys() == ARRAYS.keys()
    assert all(np.array_equal(found[name], ARRAYS[name]) for name in ARRAYS)
    with pytest.raises(ValueError, match=r"another shape.*Expected \(3, 5\).*\(7,\)"):
        write_safetensors(tmp_path / "other", {"a.weight": (3, 5)}, lambda name: ARRAYS["b"])
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_torch_files_are_those_of_torch(tmp_path):
    tensors = torch_tensors()
    tensors["parameter"] = torch.nn.Parameter(torch.ones(2, 3))
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    expected = {name: each.detach() for name, each in tensors.items()}
    assert_equal(find_tensors(tmp_path), expected)
    bfloat16 = read_tensors(tmp_path / "pytorch_model.bin")["bfloat16"]
    assert bfloat16.dtype == bfloat16.read().dtype == ml_dtypes.bfloat16


def test_a_state_dict_of_a_module_within_a_checkpoint(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    checkpoint = {"model": module.state_dict(), "epoch": 3, "args": None, "best": [1.5, "x"]}
    torch.save(checkpoint, tmp_path / "checkpoint.pt")
    found = read_tensors(tmp_path / "checkpoint.pt")
    assert_equal(found, {f"model.{name}": each for name, each in module.state_dict().items()})
    assert read_torch(tmp_path / "checkpoint.pt")["epoch"] == 3


def test_several_files_with_an_index(tmp_path):
    halves = [{"a.weight": ARRAYS["a.weight"]}, {"b": ARRAYS["b"]}]
    for index, half in enumerate(halves):
        safetensors.numpy.save_file(half, tmp_path / f"model-{index}.safetensors")
    places = {name: f"model-{i}.safetensors" for i, half in enumerate(halves) for name in half}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    found = find_tensors(tmp_path)
    assert set(found) == {"a.weight", "b"}
    np.testing.assert_array_equal(found["b"].read(), ARRAYS["b"])
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"missing: model-1\.safetensors"):
        find_tensors(tmp_path)


def test_npz(tmp_path):
    arrays = {**ARRAYS, "columns": np.asfortranarray(ARRAYS["a.weight"]), "i": np.arange(3)}
    np.savez(tmp_path / "model.npz", **arrays)
    found = read_npz(tmp_path / "model.npz")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name].read(), array, err_msg=name)
    np.savez_compressed(tmp_path / "small.npz", **ARRAYS)
    with pytest.raises(DamagedFileError, match=r"small\.npz.*is compressed"):
        read_npz(tmp_path / "small.npz")


class Malicious:
    """What a pickle can do to those who load it."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def torch_zip(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", "3\n")


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path, protocol):
    path, victim = tmp_path / "pytorch_model.bin", tmp_path / "victim"
    torch_zip(path, pickle.dumps({"a": Malicious(os.mkdir, str(victim))}, protocol))
    with pytest.raises(ValueError, match=r"asks for the Python object 'posix\.mkdir'.*run code"):
        find_tensors(tmp_path)
    assert not victim.exists()
    # Names that only look like those of the list, and attributes of what is on it.
    for name in ("builtins\neval", "torch\nload", "collections\nOrderedDict.fromkeys"):
        torch_zip(path, f"c{name}\n.".encode())
        with pytest.raises(ValueError, match="asks for the Python object"):
            read_torch(path)


@pytest.mark.parametrize(
    "state", [{"dtype": "f8"}, (None, {"dtype": "f8", "__defaults__": (1,)})], ids=["dict", "slots"]
)
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch", "FloatStorage"),
        ("torch", "Size"),
        ("torch._utils", "_rebuild_tensor_v2"),
        ("torch._utils", "_rebuild_parameter"),
        ("argparse", "Namespace"),
        ("collections", "OrderedDict"),
    ],
)
def test_a_pickle_changes_nothing_of_what_it_names(tmp_path, module, name, state):
    """Nor of other processes' parts: `argparse.Namespace` is that of all parsers."""
    path = tmp_path / "pytorch_model.bin"
    # Its name, the state, and BUILD, which sets attributes.
    torch_zip(path, f"c{module}\n{name}\n".encode() + pickle.dumps(state, 2)[2:-1] + b"b.")
    with pytest.raises(ValueError, match=r"changes what it is read with|is damaged"):
        read_torch(path)
    assert not hasattr(argparse.Namespace, "dtype")
    torch.save({"a": torch.arange(6.0)}, tmp_path / "good.pt")
    assert read_tensors(tmp_path / "good.pt")["a"].read().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("content", [b"\x80\x09.", b"X\x01\0\0\0\xff.", b"", b"c"])
def test_a_pickle_without_sense_is_named(tmp_path, content):
    torch_zip(tmp_path / "a.pt", content)
    with pytest.raises(DamagedFileError, match=r"a\.pt' is damaged"):
        read_torch(tmp_path / "a.pt")


def deflated(path, content):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", content)


def shared(levels):
    """A dict that holds another one twice, and so on: as a tree it has 2**levels values."""
    tree = {}
    for _ in range(levels):
        tree = {"a": tree, "b": tree}
    return tree


def nested(levels):
    tree = {}
    for _ in range(levels):
        tree = {"a": tree}
    return tree


HUGE = {
    # A few thousand bytes in the file, and gigabytes in memory.
    "lists": b"\x80\x04" + b"]" * (1 << 23) + b"N.",
    "kept": b"\x80\x04N" + b"\x94" * (1 << 23) + b".",
    "far": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "far in text": b"\x80\x02Np2147483647\n.",
}


@pytest.mark.parametrize("name", HUGE)
def test_a_pickle_of_very_many_objects_is_refused_before_they_are_made(name, tmp_path):
    deflated(tmp_path / "a.pt", HUGE[name])
    tracemalloc.start()
    try:
        with pytest.raises(DamagedFileError, match="at most 2097152 operations"):
            read_torch(tmp_path / "a.pt")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 26


# Tuples in one another, and such as hold another one twice: as a key, each has a hash of all parts.
DEEP, DOUBLED = b")" + b"\x85" * 300_000, b")" + b"2\x86" * 64
KEYS = {
    "deep": b"}(" + DEEP + b"K\x01u.",
    "doubled": b"}(" + DOUBLED + b"K\x01u.",
    "of one item": b"}" + DOUBLED + b"K\x01s.",
    "of a dict": b"(" + DOUBLED + b"K\x01d.",
    "kept": DOUBLED + b"q\x07}h\x07K\x01s.",
    "of a set": b"\x8f(" + DOUBLED + b"\x90.",
    "frozen": b"(" + DOUBLED + b"\x91.",
    "a number": b"}\x8b\x00\x10\x00\x00" + b"\x01" * 4096 + b"K\x01s.",
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_a_pickle_that_has_no_end_is_refused(name, tmp_path):
    """The first one ended the process, the others took years."""
    deflated(tmp_path / "a.pt", b"\x80\x04" + KEYS[name])
    with pytest.raises(DamagedFileError, match="a key of more than 100 values"):
        read_torch(tmp_path / "a.pt")


def test_keys_that_files_may_have(tmp_path):
    tree = {("a", (1, 2)): (8,) * 200, 10**30: {1.5: None}, 7: [6] * 3000}
    for protocol in range(6):
        if protocol >= 4:  # Earlier ones have no sets.
            tree |= {frozenset((5,)): {3, (4,)}}
        deflated(tmp_path / "a.pt", pickle.dumps(tree, protocol))
        assert read_torch(tmp_path / "a.pt") == tree


@pytest.mark.parametrize("key", [lambda n: n * (2**61 - 1), lambda n: (n,)])
def test_very_many_keys_whose_hashes_a_file_chooses_are_refused(key, tmp_path):
    """If all are the same, each key is compared with all before it."""
    tree = {key(number): None for number in range(1, 1100)}
    deflated(tmp_path / "a.pt", pickle.dumps(tree, 4))
    with pytest.raises(DamagedFileError, match="more than 1000 tuples or large numbers"):
        read_torch(tmp_path / "a.pt")
    small = {number: str(number) for number in range(3000)}
    deflated(tmp_path / "a.pt", pickle.dumps(small, 4))
    assert read_torch(tmp_path / "a.pt") == small


def test_a_list_that_many_hold_is_looked_through_once(monkeypatch, tmp_path):
    counted = []
    inner = reader_of_torch._inner
    monkeypatch.setattr(
        reader_of_torch, "_inner", lambda value: counted.append(inner(value)) or counted[-1]
    )
    long = [None] * 500
    deflated(tmp_path / "a.pt", pickle.dumps([long] * 500, 4))
    assert read_torch(tmp_path / "a.pt") == [long] * 500
    assert sum(map(len, filter(None, counted))) < 5 * 1000


def test_a_long_text_that_very_many_hold_is_refused(tmp_path):
    """Each of them is shown where settings are not known: a megabyte took minutes."""
    options = {f"x{number}": "y" * 200_000 for number in range(1000)}
    text = options["x0"]
    deflated(tmp_path / "a.pt", pickle.dumps(dict.fromkeys(options, text), 4))
    with pytest.raises(DamagedFileError, match="at most 2097152 values"):
        read_torch(tmp_path / "a.pt")
    deflated(tmp_path / "a.pt", pickle.dumps({"a": text, "b": text}, 4))
    assert read_torch(tmp_path / "a.pt") == {"a": text, "b": text}


def test_arrays_of_an_npz_that_share_bytes_are_refused(tmp_path):
    """A long header can be that of thousands of members, and Python reads it for each: minutes."""
    path = tmp_path / "a.npz"
    np.savez(path, a=np.zeros(3), b=np.zeros(5))
    with zipfile.ZipFile(path, "a") as archive:
        archive.filelist.append(archive.filelist[0])
        archive._didModify = True
    with pytest.raises(DamagedFileError, match="two of its arrays share bytes"):
        read_npz(path)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")
        for _ in range(2):
            with archive.open("a.npy", "w") as file:
                np.save(file, np.zeros(3))
    with pytest.raises(DamagedFileError, match="two of its arrays are called 'a'"):
        read_npz(path)


def test_a_storage_and_a_shape_without_an_end_are_named(tmp_path):
    storage = b"X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    for content in (b"(" + storage + DOUBLED + b"tQ.", DOUBLED + b"Q."):
        deflated(tmp_path / "a.pt", b"\x80\x04" + content)
        with pytest.raises(ValueError, match=r"that is no storage of numbers|is damaged"):
            read_torch(tmp_path / "a.pt")
    shape = ()
    for _ in range(64):
        shape = shape, shape
    with pytest.raises(DamagedFileError, match="cannot be") as error:
        StoredTensor(tmp_path / "x", np.dtype("f4"), shape, 0)
    assert len(str(error.value)) < 1000


def test_a_pickle_that_holds_itself_or_one_part_many_times_is_refused(tmp_path):
    itself = {}
    itself["a"] = [itself]
    trees = {
        "holds itself": itself,
        "Received: more": shared(40),
        "on 100 levels": nested(200),
        "values on": shared(21),
    }
    for message, tree in trees.items():
        deflated(tmp_path / "a.pt", pickle.dumps(tree, 2))
        with pytest.raises(DamagedFileError, match=message):
            read_tensors(tmp_path / "a.pt")
    deflated(tmp_path / "a.pt", pickle.dumps([shared(9), nested(60)], 2))
    assert read_torch(tmp_path / "a.pt") == [shared(9), nested(60)]


def test_names_that_are_none_and_shapes_of_many_axes(tmp_path):
    deflated(tmp_path / "a.pt", pickle.dumps({("a",): {}}, 2))
    with pytest.raises(DamagedFileError, match="no names of tensors"):
        read_tensors(tmp_path / "a.pt")
    tree = nested(1)
    for _ in range(3):
        tree = {"x" * 1000: tree}
    deflated(tmp_path / "a.pt", pickle.dumps(tree, 2))
    with pytest.raises(DamagedFileError, match="at most 2000 characters"):
        read_tensors(tmp_path / "a.pt")
    sizes = pickle.dumps([1] * 65, 2)[2:-1]
    deflated(tmp_path / "a.pt", b"\x80\x02ctorch\nSize\n" + sizes + b"\x85R.")
    with pytest.raises(DamagedFileError, match="too many axes"):
        read_torch(tmp_path / "a.pt")


def test_a_tensor_of_a_pickle_keeps_its_place(tmp_path):
    place = StoredTensor(tmp_path / "x", np.dtype("f4"), (2,), 0)
    with pytest.raises(DamagedFileError, match="sets attributes"):
        place.__setstate__({"path": "/etc/passwd", "strides": (-9,)})


def test_a_tensor_that_repeats_its_numbers_is_refused(tmp_path):
    """Of four bytes it would make any amount of memory."""
    with pytest.raises(DamagedFileError, match="larger than its numbers"):
        StoredTensor(tmp_path / "x", np.dtype("f4"), (1 << 40,), 0, (0,))


def test_an_index_names_files_beside_it(tmp_path):
    index = {"weight_map": {"a": "../model.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"outside of its folder.*\.\./model"):
        find_tensors(tmp_path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": ["2"], "data_offsets": [0, 8]},
        # Its numbers would be those of the header.
        {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]},
        [],
    ],
    ids=["no place", "another size", "no numbers", "before the numbers", "no entry"],
)
def test_a_wrong_header_is_named(tmp_path, entry):
    text = json.dumps({"a": entry}).encode()
    content = len(text).to_bytes(8, "little") + text + bytes(8)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"model\.safetensors' is damaged"):
        find_tensors(tmp_path)


def test_a_tensor_outside_its_file_is_refused(tmp_path):
    torch.save({"a": torch.arange(6.0)}, tmp_path / "good.pt")
    with zipfile.ZipFile(tmp_path / "good.pt") as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in content if name.endswith("data.pkl"))
    # The shape (6,) becomes (255,): more numbers than the file has.
    assert content[name].count(b"K\x06\x85") == 1
    content[name] = content[name].replace(b"K\x06\x85", b"K\xff\x85")
    with zipfile.ZipFile(tmp_path / "bad.pt", "w") as archive:
        for member, text in content.items():
            archive.writestr(member, text)
    outside = r"bad\.pt' is damaged: a tensor of the shape .* outside the .* bytes of its numbers"
    with pytest.raises(DamagedFileError, match=outside):
        read_tensors(tmp_path / "bad.pt")
    # Strides that lead backwards, to other memory.
    content[name] = content[name].replace(b"K\xff\x85", b"K\x06\x85")
    content[name] = content[name].replace(b"K\x01\x85", b"J\xff\xff\xff\xff\x85")
    with zipfile.ZipFile(tmp_path / "bad.pt", "w") as archive:
        for member, text in content.items():
            archive.writestr(member, text)
    with pytest.raises(DamagedFileError, match=r"a tensor that cannot be.*strides \(-1,\)"):
        read_tensors(tmp_path / "bad.pt")


def test_sizes_that_overflow_are_refused(tmp_path):
    """Also beside a 0, where no bytes are needed."""
    path = tmp_path / "x"
    for shape in ((1 << 62, 2), (0, 1 << 62), (0, 1 << 99), (1,) * 65):
        with pytest.raises(DamagedFileError, match="a tensor that cannot be"):
            StoredTensor(path, np.dtype("f4"), shape, 0)
    for arguments in (((2.0,), 0), (("2",), 0), ((2,), 0.5), ((2,), 0, ()), ((True,), 0)):
        with pytest.raises(DamagedFileError, match="a tensor that cannot be"):
            StoredTensor(path, np.dtype("f4"), *arguments)
    with pytest.raises(DamagedFileError, match="a tensor that cannot be"):
        StoredTensor(path, np.dtype("U0"), (2,), 0)
    assert StoredTensor(path, np.dtype("f4"), (0, 1 << 40), 0).end == 0


def test_a_header_of_brackets_is_refused(tmp_path):
    text = b"[" * 100_000
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(DamagedFileError, match="is no safetensors file"):
        find_tensors(tmp_path)


@pytest.mark.parametrize("name", ["model.npz", "pytorch_model.bin"])
def test_a_member_is_where_the_directory_says(tmp_path, name):
    """Numbers of another place would be weights without sense, and no error."""
    path = tmp_path / name
    torch.save({"a": torch.arange(64.0)}, path)
    if name == "model.npz":
        np.savez(path, a=np.arange(64, dtype="float32"))
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        info = next(each for each in archive.infolist() if each.file_size >= 256)
    begin = info.header_offset
    for damaged in (
        content[:begin] + b"XX" + content[begin + 2 :],  # no header
        content[: begin + 30] + b"?" + content[begin + 31 :],  # that of another member
    ):
        path.write_bytes(damaged)
        with pytest.raises(DamagedFileError, match=r"does not begin where|is damaged"):
            read_tensors(path)


def test_an_array_that_is_longer_than_its_member_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, a=np.arange(4, dtype="float32"), b=np.arange(64, dtype="float32"))
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    assert content["a.npy"].count(b"(4,), ") == 1
    content["a.npy"] = content["a.npy"].replace(b"(4,), ", b"(24,),")
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in content.items():
            archive.writestr(member, text)
    with pytest.raises(DamagedFileError, match=r"'a\.npy' is longer than its member"):
        read_tensors(path)


def test_an_encrypted_member_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, a=np.arange(4, dtype="float32"))
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match="is encrypted"):
        read_tensors(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'])
def test_an_index_without_sense_is_named(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(DamagedFileError, match=r"is no index of weights.*'weight_map'"):
        find_tensors(tmp_path)


def test_files_that_do_not_belong_to_their_index(tmp_path):
    for number, names in enumerate((("a", "b"), ("b",))):
        tensors = {name: np.full(2, number, "float32") for name in names}
        safetensors.numpy.save_file(tensors, tmp_path / f"{number}.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    places = {"a": "0.safetensors", "b": "0.safetensors", "c": "1.safetensors"}
    index.write_text(json.dumps({"weight_map": places}))
    with pytest.raises(DamagedFileError, match=r"names 1 tensors that its files lack, 'c'"):
        find_tensors(tmp_path)
    # The index says which of two files a tensor is in.
    places = {"a": "0.safetensors", "b": "0.safetensors"}
    index.write_text(json.dumps({"weight_map": {**places, "b": "1.safetensors"}}))
    assert find_tensors(tmp_path)["b"].read().tolist() == [1, 1]


@pytest.mark.parametrize("name", ["model.safetensors", "model.npz", "pytorch_model.bin"])
@pytest.mark.parametrize("kept", [0, 40, 0.5, 0.99])
def test_a_truncated_file_is_named(tmp_path, name, kept):
    path = tmp_path / name
    {
        "model.safetensors": lambda: safetensors.numpy.save_file(ARRAYS, path),
        "model.npz": lambda: np.savez(path, **ARRAYS),
        "pytorch_model.bin": lambda: torch.save(torch_tensors(), path),
    }[name]()
    content = path.read_bytes()
    path.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    with pytest.raises(DamagedFileError, match=rf"{name}.*Copy or download it again"):
        read_tensors(path)


def test_other_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no weights in.*Received: an empty folder"):
        find_tensors(tmp_path)
    (tmp_path / "tf_model.h5").touch()
    expected = r"Expected one of model\.safeten.*tf_model\.h5.*from_tf=True"
    with pytest.raises(FileNotFoundError, match=expected):
        find_tensors(tmp_path)
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_tensors(tmp_path / "none.pt")
    old = tmp_path / "old.pt"
    torch.save({"a": torch.ones(2)}, old, _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match=r"had before 1\.6.*torch\.load\('old\.pt', weights_only"):
        read_tensors(old)
    pointer = tmp_path / "model.safetensors"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(DamagedFileError, match=r"pointer of Git LFS.*git lfs pull"):
        find_tensors(tmp_path)
    (tmp_path / "page.pt").write_text("<html>404</html>")
    with pytest.raises(DamagedFileError, match=r"no PyTorch file.*begins with b'<htm'"):
        read_tensors(tmp_path / "page.pt")


def test_a_table_of_weights_is_not_looked_through_for_each_of_them():
    """With a thousand layers, a file was written in minutes."""

    Name = counting(str)
    table = WeightTable(tuple(Row(("weight",), Name(f"w{number}")) for number in range(300)))
    model = types.SimpleNamespace(weight=np.ones(3))
    for row in table.rows:
        np.testing.assert_array_equal(table.read(model, Name(row.theirs)), np.ones(3))
    assert Name.compared < 10 * 300
