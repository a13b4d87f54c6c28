"""The stages of three pipelines, as plain functions of NumPy arrays: who calls them makes the arrangement.

A stage takes its inputs by name and a function `new(name, shape, dtype)` that says where an output is to be computed:
into memory of the model's own, or straight into the slot that the next stage will read. So the work is the same in
every arrangement and only the copies differ.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Arrays = Mapping[str, np.ndarray]
New = Callable[[str, tuple[int, ...], Any], np.ndarray]


class Stage(Protocol):
    """One step of a pipeline."""

    inputs: tuple[str, ...]

    def __call__(self, given: Arrays, new: New) -> dict[str, np.ndarray]:
        """Compute the outputs from the inputs."""


# --- relay: does next to nothing, with a tensor of any size -----------------------------------------------------------


class Make:
    """`request` (bytes wanted, seed), INT64 `1 2` -> `payload`, UINT8 `1 bytes`, filled from the seed."""

    inputs = ("request",)

    def __call__(self, given: Arrays, new: New) -> dict[str, np.ndarray]:  # noqa: D102
        size, seed = (int(number) for number in given["request"][0])
        payload = new("payload", (1, size), np.uint8)
        payload.fill(seed % 251)
        payload[0, : min(size, 8)] = np.frombuffer(np.int64(seed).tobytes(), np.uint8)[: min(size, 8)]
        return {"payload": payload}


class Shift:
    """`payload` -> `shifted`, UINT8 `1 bytes`: every byte plus one."""

    inputs = ("payload",)

    def __call__(self, given: Arrays, new: New) -> dict[str, np.ndarray]:  # noqa: D102
        payload = given["payload"]
        return {"shifted": np.add(payload, np.uint8(1), out=new("shifted", payload.shape, np.uint8))}


class Total:
    """`shifted` -> `total`, INT64 `1 2`: its 64-bit words added up (modulo 2^64), and its size in bytes."""

    inputs = ("shifted",)

    def __call__(self, given: Arrays, new: New) -> dict[str, np.ndarray]:  # noqa: D102
        shifted = given["shifted"]
        words = shifted.reshape(-1)[: shifted.size // 8 * 8].view(np.int64)
        return {"total": np.array([[words.sum(), shifted.size]], np.int64)}


class Serve:
    """`request` (bytes wanted, seed), INT64 `1 2` -> `values`, FP32 `1 elements`: computed once, handed out as is."""

    inputs = ("request",)

    def __init__(self) -> None:
        self.kept: dict[tuple[int, int], np.ndarray] = {}

    def __call__(self, given: Arrays, new: New) -> dict[str, np.ndarray]:  # noqa: D102
        size, seed = (int(number) for number in given["request"][0])
        if (size, seed) not in self.kept:
            values = np.random.default_rng(seed).standard_normal((1, size // 4), np.float32)
            self.kept = {(size, seed): values}  # one at a time: they may be large
        return {"values": self.kept[size, seed]}


# --- road: image -> mask as JPEG --------------------------------------------------------------------------------------


class Normalise:
    """`image`, UINT8 `1 height width 3` -> `tensor`, FP16 `1 3 height width`, 0..1."""

    inputs = ("image",)

    def __call__(self, given: Arrays, new: New) -> dict[str, np.ndarray]:  # noqa: D102
        image = given["image"]
        rows, height, width, channels = image.shape
        tensor = new("tensor", (rows, channels, height, width), np.float16)
        np.copyto(tensor, (image.astype(np.float32) / 255).transpose(0, 3, 1, 2), casting="same_kind")
        return {"tensor": tensor}


class Segment:
    """`tensor` -> `logits`, FP16 `1 2 height width`, class 1 the road; onnxruntime on `segmentation.onnx`."""

    inputs = ("tensor",)

    def __init__(self, folder: Path, threads: int) -> None:
        self.session = _open_session(folder / "segmentation.onnx", threads)
        self.input = self.session.get_inputs()[0].name

    def __call__(self, given: Arrays, new: New) -> dict[str, np.ndarray]:  # noqa: D102
        tensor = given["tensor"]
        rows, _, height, width = tensor.shape
        logits = new("logits", (rows, 2, height, width), np.float16)
        _run_into(self.session, {self.input: tensor}, self.session.get_outputs()[0].name, logits)
        return {"logits": logits}


class Compress:
    """`logits` -> `jpeg`, UINT8 `1 bytes`: the road white, the rest black."""

    inputs = ("logits",)

    def __call__(self, given: Arrays, new: New) -> dict[str, np.ndarray]:  # noqa: D102
        from PIL import Image

        logits = given["logits"]
        if len(logits) != 1:
            raise ValueError(f"{len(logits)} images in one request: send one at a time, their files differ in length")
        file = io.BytesIO()
        Image.fromarray((logits[0, 1] > logits[0, 0]).astype(np.uint8) * 255).save(file, "JPEG", quality=90)
        return {"jpeg": np.frombuffer(file.getvalue(), np.uint8)[None]}


# --- passage: tokens -> sentence embedding ----------------------------------------------------------------------------


class Encode:
    """`input_ids`, `attention_mask`, INT64 `batch sequence` -> `hidden`, FP32 `batch sequence hidden`."""

    inputs = ("input_ids", "attention_mask")

    def __init__(self, folder: Path, threads: int) -> None:
        self.session = _open_session(folder / "encoder.onnx", threads)
        (self.width,) = (o.shape[2] for o in self.session.get_outputs() if o.name == "last_hidden_state")

    def __call__(self, given: Arrays, new: New) -> dict[str, np.ndarray]:  # noqa: D102
        hidden = new("hidden", (*given["input_ids"].shape, self.width), np.float32)
        _run_into(self.session, {name: given[name] for name in self.inputs}, "last_hidden_state", hidden)
        return {"hidden": hidden}


class Pool:
    """`hidden`, `attention_mask` -> `pooled`, FP32 `batch hidden`: the mean over the tokens that are there."""

    inputs = ("hidden", "attention_mask")

    def __call__(self, given: Arrays, new: New) -> dict[str, np.ndarray]:  # noqa: D102
        mask = given["attention_mask"].astype(np.float32)
        summed = np.matmul(mask[:, None, :], given["hidden"])[:, 0]
        return {"pooled": summed / mask.sum(axis=1, keepdims=True)}


class Unit:
    """`pooled` -> `embedding`, FP32 `batch hidden`, each of length 1."""

    inputs = ("pooled",)

    def __call__(self, given: Arrays, new: New) -> dict[str, np.ndarray]:  # noqa: D102
        pooled = given["pooled"]
        return {"embedding": pooled / np.linalg.norm(pooled, axis=1, keepdims=True)}


def make_stage(name: str, folder: Path, threads: int) -> Stage:
    """The stage of that name; `folder` holds its weights, where it has any."""
    if name in ("segment", "encode"):
        return (Segment if name == "segment" else Encode)(folder, threads)
    plain = {"make": Make, "shift": Shift, "total": Total, "serve": Serve, "normalise": Normalise, "compress": Compress}
    return {**plain, "pool": Pool, "unit": Unit}[name]()


def _open_session(weights: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])


def _run_into(session: Any, inputs: Arrays, output: str, target: np.ndarray) -> None:
    """Run the session with its output bound to `target`: onnxruntime writes there, nothing is copied afterwards."""
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(array))
    binding.bind_output(output, "cpu", 0, target.dtype.type, target.shape, target.ctypes.data)
    session.run_with_iobinding(binding)
