"""Runs an exported model through TensorFlow's C API alone: no Python package is imported.

TensorFlow Serving loads and runs a model by the same C++ code. Start it with `python3 -I -S`, which
leaves out every installed package, and write one JSON object to its standard input:

    {"libraries": [paths, framework first], "model": path, "disable_xla": bool,
     "requests": [{"inputs": {tensor: [text, ...]}, "outputs": {name: tensor}}]}

It prints one JSON list with, for each request, the outputs by name (shape and values) or an error.
"""

import ctypes
import json
import sys

FLOAT, INT32, STRING = 1, 3, 7
TSTRING_BYTES = 24
NUMBERS = {FLOAT: ctypes.c_float, INT32: ctypes.c_int32}

POINTER_RESULTS = (
    "TF_NewStatus",
    "TF_NewGraph",
    "TF_NewSessionOptions",
    "TF_LoadSessionFromSavedModel",
    "TF_AllocateTensor",
    "TF_TensorData",
    "TF_StringGetDataPointer",
    "TF_GraphOperationByName",
)


class Output(ctypes.Structure):
    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


class Server:
    def __init__(self, libraries, model, disable_xla):
        *_, self.tf = [ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in libraries]
        for name in POINTER_RESULTS:
            getattr(self.tf, name).restype = ctypes.c_void_p
        self.tf.TF_Message.restype = ctypes.c_char_p
        self.tf.TF_StringGetSize.restype = ctypes.c_size_t
        self.tf.TF_Dim.restype = ctypes.c_int64
        self.tf.TF_TensorType.restype = ctypes.c_int
        if disable_xla:
            self.tf._ZN10tensorflow21DisableXlaCompilationEv()
        self.status = self.tf.TF_NewStatus()
        self.graph = self.tf.TF_NewGraph()
        tags = (ctypes.c_char_p * 1)(b"serve")
        self.session = self.tf.TF_LoadSessionFromSavedModel(
            ctypes.c_void_p(self.tf.TF_NewSessionOptions()),
            None,
            model.encode(),
            tags,
            1,
            ctypes.c_void_p(self.graph),
            None,
            ctypes.c_void_p(self.status),
        )
        self.check()

    def check(self):
        if self.tf.TF_GetCode(ctypes.c_void_p(self.status)) != 0:
            raise RuntimeError(self.tf.TF_Message(ctypes.c_void_p(self.status)).decode())

    def output(self, tensor):
        name, index = tensor.rsplit(":", 1)
        operation = self.tf.TF_GraphOperationByName(ctypes.c_void_p(self.graph), name.encode())
        return Output(operation, int(index))

    def texts(self, values):
        shape = (ctypes.c_int64 * 1)(len(values))
        tensor = self.tf.TF_AllocateTensor(
            STRING, shape, 1, ctypes.c_size_t(TSTRING_BYTES * len(values))
        )
        start = self.tf.TF_TensorData(ctypes.c_void_p(tensor))
        for i, text in enumerate(values):
            place = ctypes.c_void_p(start + i * TSTRING_BYTES)
            data = text.encode("utf-8", "surrogateescape")
            self.tf.TF_StringInit(place)
            self.tf.TF_StringCopy(place, data, ctypes.c_size_t(len(data)))
        return tensor

    def values(self, tensor):
        tensor = ctypes.c_void_p(tensor)
        rank = self.tf.TF_NumDims(tensor)
        shape = [self.tf.TF_Dim(tensor, axis) for axis in range(rank)]
        size = 1
        for length in shape:
            size *= length
        start = self.tf.TF_TensorData(tensor)
        kind = self.tf.TF_TensorType(tensor)
        if kind == STRING:
            return shape, [self.text(start + i * TSTRING_BYTES) for i in range(size)]
        return shape, list((NUMBERS[kind] * size).from_address(start)) if size else []

    def text(self, place):
        data = self.tf.TF_StringGetDataPointer(ctypes.c_void_p(place))
        return ctypes.string_at(data, self.tf.TF_StringGetSize(ctypes.c_void_p(place))).decode()

    def run(self, inputs, outputs):
        count = len(inputs)
        received = (ctypes.c_void_p * len(outputs))()
        self.tf.TF_SessionRun(
            ctypes.c_void_p(self.session),
            None,
            (Output * count)(*map(self.output, inputs)),
            (ctypes.c_void_p * count)(*map(self.texts, inputs.values())),
            count,
            (Output * len(outputs))(*map(self.output, outputs.values())),
            received,
            len(outputs),
            None,
            0,
            None,
            ctypes.c_void_p(self.status),
        )
        self.check()
        return dict(zip(outputs, map(self.values, received), strict=True))


def main():
    job = json.load(sys.stdin)
    assert not any("site-packages" in path for path in sys.path), "start with python3 -I -S"
    server = Server(job["libraries"], job["model"], job["disable_xla"])
    answers = []
    for request in job["requests"]:
        try:
            answers.append(server.run(**request))
        except RuntimeError as error:
            answers.append({"error": str(error)})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
