"""Post-processing: from logits or a mask to a black and white JPEG, from a raw image to one in colour.

With the parameter `operation` set to `identity` it hands its input back and does nothing. The parameter `stall_us` puts
a wait in front of each answer: a stand-in for a copy that this machine does not have.
"""

from __future__ import annotations

import io
import json
import os
import time
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image


class TritonPythonModel:
    """One instance, on the processors that the configuration gives it."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read names, types and operation from the configuration."""
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config.get("parameters", {}).items()}
        if processors := parameters.get("processors"):
            os.sched_setaffinity(0, {int(processor) for processor in processors.split(",")})
        (given,), (answered,) = config["input"], config["output"]
        self.input_name, self.output_name = given["name"], answered["name"]
        self.batched = int(config["max_batch_size"]) > 0
        self.identity = parameters.get("operation", "jpeg") == "identity"
        self.stall_s = int(parameters.get("stall_us", "0")) / 1e6
        self.takes_mask = given["data_type"] == "TYPE_UINT8"

    def execute(self, requests: list[Any]) -> list[Any]:
        """One answer a request; a request that cannot be answered does not spoil the others."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        tensor = pb_utils.get_input_tensor_by_name(request, self.input_name).as_numpy()
        if self.stall_s:
            time.sleep(self.stall_s)  # a copy by the GPU's own engine keeps no processor busy either
        try:
            answer = tensor if self.identity else self._encode(tensor)
        except (ValueError, OSError) as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"no JPEG can be made: {error}"))
        return pb_utils.InferenceResponse([pb_utils.Tensor(self.output_name, answer)])

    def _encode(self, tensor: np.ndarray) -> np.ndarray:
        """JPEGs as bytes, `1`, or `batch 1` where the model has a batch dimension."""
        jpegs = [_jpeg(self._picture(one)) for one in (tensor if self.batched else tensor[None])]
        return np.array(jpegs, np.object_).reshape((-1, 1) if self.batched else (1,))

    def _picture(self, one: np.ndarray) -> np.ndarray:
        """What is drawn, uint8: the mask, or the colours of a raw image `3 height width` in 0..1."""
        if self.takes_mask:
            return _black_and_white(one != 0)
        if len(one) == 2:
            return _black_and_white(one[1] > one[0])
        if len(one) == 3:
            return (one * np.float16(255)).astype(np.uint8).transpose(1, 2, 0)
        raise ValueError(f"{len(one)} channels; 2 are taken for logits, 3 for the colours of an image")


def _black_and_white(mask: np.ndarray) -> np.ndarray:
    return np.where(mask, np.uint8(255), np.uint8(0))


def _jpeg(picture: np.ndarray) -> bytes:
    written = io.BytesIO()
    Image.fromarray(picture).save(written, "JPEG")
    return written.getvalue()
