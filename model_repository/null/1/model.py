"""Takes e5's inputs, answers with a constant embedding, computes nothing: what a client can do at most."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Keeps one array of ones and hands out its first rows."""

    def initialize(self, args: dict[str, str]) -> None:
        """Make the constant, `batch hidden`, float32."""
        config = json.loads(args["model_config"])
        (output,) = config["output"]
        self.name = output["name"]
        self.constant = np.ones((config["max_batch_size"], int(output["dims"][0])), np.float32)

    def execute(self, requests: list[Any]) -> list[Any]:
        """One answer a request, with as many rows as came in."""
        return [self._answer(pb_utils.get_input_tensor_by_name(request, "input_ids")) for request in requests]

    def _answer(self, ids: Any) -> Any:
        return pb_utils.InferenceResponse([pb_utils.Tensor(self.name, self.constant[: ids.shape()[0]])])
