"""The encoder in Triton's Python backend, for a server without the backend of its library.

The parameter `engine` of the configuration says what computes: `onnxruntime` and `openvino` on the exported ONNX file,
`torch` on the exported PyTorch program. Whatever it is, the server, the batching and the checks are the same.

Requests that Triton's batcher hands over together run as one batch: padded to the longest, split again afterwards,
each answer cut to its own request's length. A request that cannot be answered gets an error of its own and does not
spoil the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

_INPUTS = ("input_ids", "attention_mask")
_ALL_OUTPUTS = ("last_hidden_state", "cls_embedding", "sentence_embedding")  # in the order the exports have them
_PER_TOKEN = "last_hidden_state"
_FILES = {"onnxruntime": "model.onnx", "openvino": "model.onnx", "torch": "model.pt2"}
Run = Callable[[np.ndarray, np.ndarray, Sequence[str]], list[np.ndarray]]
"""Ids, mask, names of outputs -> the outputs in that order."""


class TritonPythonModel:
    """One instance: one session of the engine."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the engine with the threads of the configuration's parameters."""
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        self.outputs = [output["name"] for output in config["output"]]
        self.max_tokens = int(parameters["max_tokens"])
        self.vocabulary_size = int(parameters["vocabulary_size"]) if "vocabulary_size" in parameters else None
        self.engine = parameters.get("engine", "onnxruntime")
        if self.engine not in _FILES:
            raise ValueError(f"engine is {self.engine!r}: this model runs {', '.join(_FILES)}")
        self.run = _open(self.engine, Path(args["model_repository"], args["model_version"]), parameters)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer requests; arrays are `batch sequence`, int64, one batch and sequence a request."""
        responses: list[Any] = [None] * len(requests)
        good: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for index, request in enumerate(requests):
            ids, mask = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in _INPUTS)
            if problem := self._problem(ids, mask):
                responses[index] = _error(problem)
            else:
                good[index] = ids, mask
        if good:
            wanted = {index: self._wanted(requests[index]) for index in good}
            for index, response in self._answer(good, wanted).items():
                responses[index] = response
        return responses

    def _wanted(self, request: Any) -> list[str]:
        names = request.requested_output_names()
        return [name for name in self.outputs if name in names]

    def _problem(self, ids: np.ndarray, mask: np.ndarray) -> str | None:
        if ids.shape != mask.shape:
            return f"input_ids has shape {list(ids.shape)}, attention_mask {list(mask.shape)}: give both the same"
        length = ids.shape[1]
        if not 1 <= length <= self.max_tokens:
            return f"a row has {length} tokens, this model takes 1 to {self.max_tokens}: truncate it when tokenising"
        last = self.vocabulary_size - 1 if self.vocabulary_size else None
        if (lowest := ids.min()) < 0 or (last is not None and ids.max() > last):
            found = lowest if lowest < 0 else ids.max()
            bounds = f"0 to {last}" if last is not None else "0 or more"
            return f"input_ids holds the token id {found}, this model knows {bounds}: use its own tokenizer"
        if not mask.any(axis=1).all():
            return "attention_mask has a row without a token: a row needs at least one 1"
        return None

    def _answer(self, inputs: dict[int, tuple[np.ndarray, np.ndarray]], wanted: dict[int, list[str]]) -> dict[int, Any]:
        names = [name for name in self.outputs if any(name in some for some in wanted.values())]
        try:
            ids, mask = _merge(list(inputs.values()))
            results = dict(zip(names, self.run(ids, mask, names), strict=True))
        except Exception as error:  # each library has its own classes, onnxruntime one for each of its status codes
            if len(inputs) == 1:
                return dict.fromkeys(inputs, _error(f"{self.engine}: {error}"))
            alone = (self._answer({index: inputs[index]}, {index: wanted[index]}) for index in inputs)
            return {index: response for answer in alone for index, response in answer.items()}
        return dict(_split(results, inputs, wanted))


def _open(engine: str, version: Path, parameters: dict[str, str]) -> Run:
    weights = version / _FILES[engine]
    if not weights.is_file():
        raise FileNotFoundError(
            f"{weights} is not there. Weights are built, not committed: run notebook 01_export_models, and serve "
            "the repository that workbook.serving.repository.assemble_repository writes."
        )
    try:
        return _OPENERS[engine](weights, parameters)
    except ImportError as error:
        raise RuntimeError(f"the library {engine} does not import here ({error}): run make setup") from error
    except Exception as error:  # a malformed file; each library has its own classes
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise RuntimeError(
            f"{engine} cannot load {weights.name} ({weights.stat().st_size} bytes): {reason} - the file is malformed: "
            "delete its folder in artifacts/ and run notebook 02_build_engines again"
        ) from error


def _open_onnxruntime(weights: Path, parameters: dict[str, str]) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(parameters["intra_op_thread_count"])
    options.inter_op_num_threads = int(parameters["inter_op_thread_count"])
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])

    def run(ids: np.ndarray, mask: np.ndarray, outputs: Sequence[str]) -> list[np.ndarray]:
        found: list[np.ndarray] = session.run(list(outputs), dict(zip(_INPUTS, (ids, mask), strict=True)))
        return found

    return run


def _open_openvino(weights: Path, parameters: dict[str, str]) -> Run:
    import openvino

    # Left to itself it computes in bf16 where the processor can, which would no longer be fp32.
    settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    if threads := int(parameters["intra_op_thread_count"]):
        settings["INFERENCE_NUM_THREADS"] = threads
    request = openvino.Core().compile_model(weights, "CPU", settings).create_infer_request()

    def run(ids: np.ndarray, mask: np.ndarray, outputs: Sequence[str]) -> list[np.ndarray]:
        results = request.infer(dict(zip(_INPUTS, (ids, mask), strict=True)), share_inputs=True)
        return [np.array(results[name]) for name in outputs]  # copied: the next request computes into the same memory

    return run


def _open_torch(weights: Path, parameters: dict[str, str]) -> Run:
    import torch

    module = torch.export.load(weights).module()
    if threads := int(parameters["intra_op_thread_count"]):
        torch.set_num_threads(threads)

    def run(ids: np.ndarray, mask: np.ndarray, outputs: Sequence[str]) -> list[np.ndarray]:
        writable = (np.require(array, requirements="W") for array in (ids, mask))  # a request's memory is not
        with torch.inference_mode():
            found = dict(zip(_ALL_OUTPUTS, module(*map(torch.from_numpy, writable)), strict=True))
        return [found[name].float().numpy() for name in outputs]

    return run


_OPENERS = {"onnxruntime": _open_onnxruntime, "openvino": _open_openvino, "torch": _open_torch}


def _merge(inputs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    if len(inputs) == 1:
        return inputs[0]
    rows = sum(len(ids) for ids, _ in inputs)
    longest = max(ids.shape[1] for ids, _ in inputs)
    merged_ids = np.zeros((rows, longest), np.int64)  # any id will do where the mask is 0
    merged_mask = np.zeros((rows, longest), np.int64)
    start = 0
    for ids, mask in inputs:
        here = slice(start, start + len(ids)), slice(ids.shape[1])
        merged_ids[here], merged_mask[here] = ids, mask
        start += len(ids)
    return merged_ids, merged_mask


def _split(
    results: dict[str, np.ndarray], inputs: dict[int, tuple[np.ndarray, np.ndarray]], wanted: dict[int, list[str]]
) -> Any:
    start = 0
    for index, (ids, _) in inputs.items():
        rows = slice(start, start + len(ids))
        tensors = []
        for name in wanted[index]:
            array = results[name][rows, : ids.shape[1]] if name == _PER_TOKEN else results[name][rows]
            tensors.append(pb_utils.Tensor(name, np.ascontiguousarray(array)))
        yield index, pb_utils.InferenceResponse(tensors)
        start += len(ids)


def _error(problem: str) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(problem, pb_utils.TritonError.INVALID_ARG))
