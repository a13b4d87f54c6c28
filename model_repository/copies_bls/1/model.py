"""A pipeline by business logic scripting: a Python model that calls the stages one after the other.

`asynchronous` decides whether a call blocks the instance. With it, the requests that Triton's batcher hands over
together wait for their stages side by side.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Calls the models that the configuration's parameter `calls` names: JSON, `[model, inputs, outputs]` each."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters."""
        config = json.loads(args["model_config"])
        given = {name: value["string_value"] for name, value in config["parameters"].items()}
        self.calls = json.loads(given["calls"])
        self.inputs = [entry["name"] for entry in config["input"]]
        self.outputs = [entry["name"] for entry in config["output"]]
        self.asynchronous = given["asynchronous"] == "yes"
        self.wishes = _wishes(given.get("preferred_memory", ""))

    def execute(self, requests: list[Any]) -> list[Any] | Coroutine[Any, Any, list[Any]]:
        """Answer the requests: one after the other, or, as a coroutine that the stub awaits, side by side."""
        return self._answer_together(requests) if self.asynchronous else [self._answer(request) for request in requests]

    async def _answer_together(self, requests: list[Any]) -> list[Any]:
        return list(await asyncio.gather(*(self._answer_later(request) for request in requests)))

    async def _answer_later(self, request: Any) -> Any:
        tensors = self._tensors(request)
        for model, inputs, outputs in self.calls:
            response = await self._request(model, inputs, outputs, tensors).async_exec()
            if response.has_error():
                return _refused(model, response)
            _take(response, outputs, tensors)
        return self._response(tensors)

    def _answer(self, request: Any) -> Any:
        tensors = self._tensors(request)
        for model, inputs, outputs in self.calls:
            response = self._request(model, inputs, outputs, tensors).exec()
            if response.has_error():
                return _refused(model, response)
            _take(response, outputs, tensors)
        return self._response(tensors)

    def _tensors(self, request: Any) -> dict[str, Any]:
        return {name: pb_utils.get_input_tensor_by_name(request, name) for name in self.inputs}

    def _request(self, model: str, inputs: list[str], outputs: list[str], tensors: dict[str, Any]) -> Any:
        # the tensors go on as they came: naming one anew would copy it
        return pb_utils.InferenceRequest(
            model_name=model,
            inputs=[tensors[name] for name in inputs],
            requested_output_names=outputs,
            **self.wishes,
        )

    def _response(self, tensors: dict[str, Any]) -> Any:
        return pb_utils.InferenceResponse([tensors[name] for name in self.outputs])


def _wishes(memory: str) -> dict[str, Any]:
    """Where the stages' outputs should land; nothing leaves it to Triton, which then prefers the CPU."""
    if not memory:
        return {}
    kind = pb_utils.TRITONSERVER_MEMORY_GPU if memory == "gpu" else pb_utils.TRITONSERVER_MEMORY_CPU
    return {"preferred_memory": pb_utils.PreferredMemory(kind, 0)}


def _take(response: Any, outputs: list[str], tensors: dict[str, Any]) -> None:
    tensors.update({name: pb_utils.get_output_tensor_by_name(response, name) for name in outputs})


def _refused(model: str, response: Any) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{model}: {response.error().message()}"))
