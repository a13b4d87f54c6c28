"""What the workload must cost on this machine at least: its operations, and how many of them a second are possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from workbook.measuring.corpus.batches import Batch
from workbook.measuring.offline.engines import torch_threads

if TYPE_CHECKING:
    import torch

    from workbook.models.e5 import Encoder

MEASURE_S = 0.3
"""Of a round, s: enough products for a rate to within a percent."""
_ROUNDS = 3


@dataclass(frozen=True)
class Floor:
    """Prediction made before the measurement.

    Attributes:
        flop: of all rows, padding included.
        ceiling_flop_per_s: reached by a bare matrix product of the encoder's own shapes.
        rows: in the workload.
        measure: measures the ceiling again.
    """

    flop: float
    ceiling_flop_per_s: float
    rows: int
    measure: Callable[[], float] = field(repr=False, compare=False)

    @property
    def rows_per_s(self) -> float:
        """Throughput that no arm of this precision on these threads can exceed."""
        return self.rows / (self.flop / self.ceiling_flop_per_s)

    def of(self, encoder: Encoder, batches: Sequence[Batch]) -> Floor:
        """The same machine's floor for other batches."""
        return replace(self, flop=_flop_of(encoder, batches), rows=sum(batch.rows for batch in batches))

    def verified(self, rows_per_s: float) -> tuple[Floor, str]:
        """Hold the prediction against the fastest arm, with the ceiling measured once more, since machines change pace.

        Returns:
            The floor with the higher of the two ceilings, and what came out, in words.
        """
        floor = replace(self, ceiling_flop_per_s=max(self.ceiling_flop_per_s, self.measure()))
        if rows_per_s != rows_per_s:
            return floor, "No arm computed in the precision of the floor, so there is nothing to hold against it."
        share = rows_per_s / floor.rows_per_s
        reached = f"The fastest arm, {rows_per_s:.1f} rows/s, reached {share:.0%} of the floor's {floor.rows_per_s:.1f}"
        if share <= 1:
            return floor, f"{reached}: the prediction held."
        return floor, (
            f"{reached}, which cannot be: the machine was slower while the ceiling was measured than while the arms "
            "ran. Something else is using it; read every number of this run with care."
        )

    @property
    def sentence(self) -> str:
        """The prediction in words."""
        return (
            f"{self.rows:,} rows cost {self.flop / 1e12:.2f} TFLOP, padding included: "
            f"{self.flop / self.rows / 1e9:.2f} GFLOP a row. A bare matrix product reaches "
            f"{self.ceiling_flop_per_s / 1e9:.0f} GFLOP/s here, so no arm can handle more than "
            f"{self.rows_per_s:.1f} rows/s."
        )


def predict_floor(
    encoder: Encoder, batches: Sequence[Batch], threads: int, device: str = "cpu", *, seconds: float = MEASURE_S
) -> Floor:
    """Count the workload's operations and measure the machine's ceiling for them.

    Args:
        encoder: its layers are counted.
        batches: the workload.
        threads: PyTorch computes the matrix product with, on a CPU.
        device: `cpu`, `cuda` or `auto`.
        seconds: of each of the three rounds a library gets; more than MEASURE_S is not taken.
    """
    tokens = max(batch.padded_tokens for batch in batches)
    shape = (tokens, encoder.hidden_size, _ffn_size(encoder))
    measure = partial(_matrix_product_flop_per_s, shape, threads, device, min(seconds, MEASURE_S))
    return Floor(_flop_of(encoder, batches), measure(), sum(batch.rows for batch in batches), measure)


def encoder_flop(encoder: Encoder, batch: int, sequence: int) -> float:
    """Floating-point operations of one forward pass, a multiply-add counted as two.

    Each weight of the layers' matrices is used once a token: 2 x weights x tokens. Attention adds the two products of
    `sequence x sequence` scores with `hidden` columns: 2 x 2 x hidden x sequence a token and layer (Vaswani et al.
    2017, section 3.2). Embedding look-ups, norms and softmax are left out: a few percent, so the floor is a floor.
    """
    tokens = batch * sequence
    hidden = encoder.hidden_size
    weights = encoder.layers * (4 * hidden * hidden + 2 * hidden * _ffn_size(encoder))
    return 2.0 * weights * tokens + encoder.layers * 4.0 * hidden * sequence * tokens


def _flop_of(encoder: Encoder, batches: Sequence[Batch]) -> float:
    return sum(encoder_flop(encoder, *batch.input_ids.shape) for batch in batches)


def _ffn_size(encoder: Encoder) -> int:
    return int(encoder.config.intermediate_size)


def _matrix_product_flop_per_s(shape: tuple[int, int, int], threads: int, device: str, seconds: float) -> float:
    """Best of a few rounds of the encoder's largest product, `tokens hidden` x `hidden ffn`, in fp32.

    On a CPU the libraries differ, by up to a factor of two: each one there is tried, since a ceiling is what the best
    of them reaches.
    """
    import torch

    best = partial(_best_rate, shape, seconds)
    if device != "cpu" and torch.cuda.is_available():
        return best(_torch_product(*shape, torch.device("cuda")))
    with torch_threads(threads):
        rates = [best(_torch_product(*shape, torch.device("cpu")))]
    rates.append(best(_onnxruntime_product(*shape, threads)))
    if find_spec("openvino"):
        rates.append(best(_openvino_product(*shape, threads)))
    return max(rates)


def _best_rate(shape: tuple[int, int, int], seconds: float, product: Callable[[], object]) -> float:
    product()  # the first one packs weights and starts threads
    return max(_rate(shape, seconds, product) for _ in range(_ROUNDS))


def _rate(shape: tuple[int, int, int], seconds: float, product: Callable[[], object]) -> float:
    products, started_ns = 0, time.perf_counter_ns()
    while time.perf_counter_ns() - started_ns < seconds * 1e9:
        product()
        products += 1
    return 2.0 * prod(shape) * products / ((time.perf_counter_ns() - started_ns) / 1e9)


def _torch_product(tokens: int, hidden: int, ffn: int, place: torch.device) -> Callable[[], object]:
    import torch

    left, right = torch.rand(tokens, hidden, device=place), torch.rand(hidden, ffn, device=place)

    def product() -> None:
        left @ right
        if place.type == "cuda":
            torch.cuda.synchronize()

    return product


def _onnxruntime_product(tokens: int, hidden: int, ffn: int, threads: int) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(_product_graph(tokens, hidden, ffn), options, ["CPUExecutionProvider"])
    feed = {"left": np.random.default_rng(0).random((tokens, hidden), np.float32)}
    return lambda: session.run(None, feed)


def _openvino_product(tokens: int, hidden: int, ffn: int, threads: int) -> Callable[[], object]:
    """The product with OpenVINO, held to fp32: left to itself it computes in bf16 on processors that can."""
    import openvino

    core = openvino.Core()
    model = core.read_model(model=_product_graph(tokens, hidden, ffn), weights=b"")
    hints = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(model, "CPU", hints).create_infer_request()
    left = np.random.default_rng(0).random((tokens, hidden), np.float32)
    return lambda: request.infer([left])


def _product_graph(tokens: int, hidden: int, ffn: int) -> bytes:
    """An ONNX graph of one matrix product whose right side is a constant, as an encoder's weights are."""
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.random.default_rng(1).random((hidden, ffn), np.float32), "right")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in
            (("left", (tokens, hidden)), ("product", (tokens, ffn)))]  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["left", "right"], ["product"])], "product", ends[:1], ends[1:], [weights]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return bytes(model.SerializeToString())
