"""e5 in Triton's Python backend: onnxruntime on the exported encoder, for a server without the onnxruntime backend.

Requests that Triton's batcher hands over together run as one batch: padded to the longest, split again afterwards,
each answer cut to its own request's length. A request that cannot be answered gets an error of its own and does not
spoil the others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils

_INPUTS = ("input_ids", "attention_mask")
_PER_TOKEN = "last_hidden_state"


class TritonPythonModel:
    """One instance: one onnxruntime session."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the session with the threads of the configuration's parameters."""
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        self.outputs = [output["name"] for output in config["output"]]
        self.max_tokens = int(parameters["max_tokens"])
        self.vocabulary_size = int(parameters["vocabulary_size"]) if "vocabulary_size" in parameters else None
        weights = Path(args["model_repository"], args["model_version"], "model.onnx")
        if not weights.is_file():
            raise FileNotFoundError(
                f"{weights} is not there. Weights are built, not committed: run notebook 01_export_models, and serve "
                "the repository that workbook.serving.repository.assemble_repository writes."
            )
        self.session = _open_session(weights, parameters)

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
            results = dict(
                zip(names, self.session.run(names, dict(zip(_INPUTS, (ids, mask), strict=True))), strict=True)
            )
        except Exception as error:  # onnxruntime has an exception class for each of its status codes
            if len(inputs) == 1:
                return dict.fromkeys(inputs, _error(f"onnxruntime: {error}"))
            alone = (self._answer({index: inputs[index]}, {index: wanted[index]}) for index in inputs)
            return {index: response for answer in alone for index, response in answer.items()}
        return dict(_split(results, inputs, wanted))


def _open_session(weights: Path, parameters: dict[str, str]) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(parameters["intra_op_thread_count"])
    options.inter_op_num_threads = int(parameters["inter_op_thread_count"])
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])


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
