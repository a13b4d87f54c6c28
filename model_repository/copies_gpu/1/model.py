"""The relay's stages on a GPU: tensors come and go by DLPack, so PyTorch computes where Triton has them.

With `FORCE_CPU_ONLY_INPUT_TENSORS` set to "no" an input is on the GPU or on the CPU, as Triton finds it; the model has
to take both. Where the last stage's input was is reported beside the size.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import triton_python_backend_utils as pb_utils
from torch.utils.dlpack import from_dlpack, to_dlpack


class TritonPythonModel:
    """Runs the stages that the parameter `stages` names, in order, on this instance's GPU."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters."""
        config = json.loads(args["model_config"])
        given = {name: value["string_value"] for name, value in config["parameters"].items()}
        on_gpu = args["model_instance_kind"] == "GPU"
        self.device = torch.device(f"cuda:{args['model_instance_device_id']}" if on_gpu else "cpu")
        self.stages = [getattr(self, f"_{name}") for name in given["stages"].split(",")]
        self.inputs = [entry["name"] for entry in config["input"]]
        self.outputs = [entry["name"] for entry in config["output"]]

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request by itself."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        tensors = {}
        for name in self.inputs:
            tensors[name] = from_dlpack(pb_utils.get_input_tensor_by_name(request, name).to_dlpack())
        where = int(tensors[self.inputs[0]].is_cuda)
        for stage in self.stages:
            tensors.update(stage(tensors))
        if "total" in tensors:
            tensors["total"][0, 1] += where << 48  # beside the size, far above any
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # Triton copies the output on a stream of its own
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor.from_dlpack(name, to_dlpack(tensors[name].contiguous())) for name in self.outputs]
        )

    def _make(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        size, seed = (int(number) for number in tensors["request"][0].tolist())
        return {"payload": torch.full((1, size), seed % 251, dtype=torch.uint8, device=self.device)}

    def _shift(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"shifted": tensors["payload"].to(self.device) + 1}

    def _total(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        shifted = tensors["shifted"].to(self.device)
        total = shifted.view(torch.int64).sum() if shifted.shape[1] % 8 == 0 else shifted.sum()
        return {"total": torch.tensor([[int(total), shifted.shape[1]]], dtype=torch.int64)}
