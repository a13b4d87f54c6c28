"""Segmentation in Triton's Python backend: onnxruntime, for a server without the libtorch backend.

Requests that Triton's batcher hands over together run as one batch and are split again afterwards.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One instance: one onnxruntime session on the processors that the configuration gives it."""

    def initialize(self, args: dict[str, str]) -> None:
        """Go to the processors, then open the session, whose threads stay there."""
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        if processors := parameters.get("processors"):
            os.sched_setaffinity(0, {int(processor) for processor in processors.split(",")})
        (given,), (answered,) = config["input"], config["output"]
        self.input_name, self.output_name = given["name"], answered["name"]
        weights = Path(args["model_repository"], args["model_version"], "model.onnx")
        if not weights.is_file():
            raise FileNotFoundError(
                f"{weights} is not there. Weights are built, not committed: run notebook 01_export_models, or serve "
                "with workbook.serving.ensemble_server, which exports them first."
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(parameters["intra_op_thread_count"])
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # it would eat a shared processor
        self.session = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer requests; images are float16 `batch 3 height width`, one batch a request."""
        images = [pb_utils.get_input_tensor_by_name(request, self.input_name).as_numpy() for request in requests]
        try:
            together = images[0] if len(images) == 1 else np.concatenate(images)
            (results,) = self.session.run([self.output_name], {self.input_name: together})
        except Exception as error:  # onnxruntime has an exception class for each of its status codes
            failure = pb_utils.TritonError(f"onnxruntime: {error}")
            return [pb_utils.InferenceResponse(error=failure) for _ in requests]
        ends = np.cumsum([len(some) for some in images])
        parts = np.split(results, ends[:-1])
        return [pb_utils.InferenceResponse([pb_utils.Tensor(self.output_name, part)]) for part in parts]
