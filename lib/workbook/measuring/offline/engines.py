"""What a batch job computes with, in this process: PyTorch, or onnxruntime on the same weights exported.

onnxruntime is what the server runs too: the distance between it and the online arm is the cost of serving alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from workbook.errors import SettingError, SetupError

if TYPE_CHECKING:
    from workbook.models.e5 import Encoder, Tokens

Pooling = Literal["mean", "cls"]
Precision = Literal["fp32", "bf16"]


class Engine(ABC):
    """A model in this process. Both stages return when their work is done, on a GPU too."""

    @abstractmethod
    def infer(self, tokens: Tokens) -> Any:
        """The forward pass; what it returns is for `pool` of the same engine."""

    @abstractmethod
    def pool(self, inferred: Any) -> NDArray[np.float32]:
        """The embeddings in this process's memory: float32, `batch hidden`."""


class TorchEngine(Engine):
    """The article's way: forward pass, then pooling, in PyTorch.

    Args:
        encoder: already on the device.
        device: `cpu` or `cuda`.
        precision: `bf16` computes under autocast.
        pooling: `mean` is the masked mean with L2 norm, `cls` the first token's hidden state as it is.
    """

    def __init__(self, encoder: Encoder, device: str, precision: Precision, pooling: Pooling) -> None:
        import torch

        self._torch = torch
        self._module = encoder.module
        self._device = torch.device(device)
        self._autocast = precision == "bf16"
        self._pooling = pooling

    def infer(self, tokens: Tokens) -> Any:
        """Last hidden state, `batch sequence hidden`, and attention mask, on the device."""
        torch = self._torch
        with torch.inference_mode(), torch.autocast(self._device.type, torch.bfloat16, enabled=self._autocast):
            ids = torch.from_numpy(tokens.input_ids).to(self._device)
            mask = torch.from_numpy(tokens.attention_mask).to(self._device)
            hidden = self._module(ids, mask).last_hidden_state
            self._synchronize()
        return hidden, mask

    def pool(self, inferred: Any) -> NDArray[np.float32]:
        """Copied to the CPU, which waits for the GPU."""
        from workbook.models.e5 import mean_pool

        hidden, mask = inferred
        with self._torch.inference_mode():
            pooled = mean_pool(hidden, mask) if self._pooling == "mean" else hidden[:, 0].float()
            return cast("NDArray[np.float32]", np.ascontiguousarray(pooled.cpu().numpy()))

    def _synchronize(self) -> None:
        if self._device.type == "cuda":  # a CUDA call returns when the work is queued, not when it is done
            self._torch.cuda.synchronize(self._device)


class OnnxEngine(Engine):
    """The exported model under onnxruntime; pooling is in its graph, so that nearly all time is inference.

    Args:
        path: the ONNX file.
        threads: threads within an operator.
        device: `cpu` or `cuda`.
        pooling: which output is asked for; only what it needs is computed, as in the server.

    Raises:
        SetupError: this onnxruntime cannot compute on a GPU.
    """

    def __init__(self, path: Path, threads: int, device: str, pooling: Pooling) -> None:
        import onnxruntime

        from workbook.models.sessions import open_session

        provider = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}[device]
        if provider not in onnxruntime.get_available_providers():
            raise SetupError(f"this onnxruntime has no {provider}: install onnxruntime-gpu, or set device to cpu.")
        self._session = open_session(path, threads, providers=(provider,))
        self._output = "sentence_embedding" if pooling == "mean" else "cls_embedding"

    def infer(self, tokens: Tokens) -> Any:
        """The pooled output, already in this process's memory."""
        return self._session.run([self._output], tokens.inputs)[0]

    def pool(self, inferred: Any) -> NDArray[np.float32]:
        """Nothing is left to do."""
        return cast("NDArray[np.float32]", inferred)


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let PyTorch compute with this many threads; afterwards with as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def torch_engine(
    encoder: Encoder, threads: int, device: str, precision: Precision, pooling: Pooling
) -> Iterator[TorchEngine]:
    """PyTorch with this many threads on this device; afterwards both are as they were.

    Raises:
        SettingError: PyTorch sees no GPU.
    """
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise SettingError("device is 'cuda' and PyTorch sees no GPU: set device to auto or cpu.")
    device_before = next(encoder.module.parameters()).device
    encoder.module.to(device)
    try:
        with torch_threads(threads):
            yield TorchEngine(encoder, device, precision, pooling)
    finally:
        encoder.module.to(device_before)
