"""Which tensors are copied, how often and by whom: a ledger from the shapes and the Python backend's rules.

The rules, for tensors in main memory (Triton's Python backend 2.51; each was counted in a running server, see
`measuring.copies.counter`). A Python model runs in a process of its own, the *stub*, and shares one memory region with
the server:

1. An output array is copied into the shared region by the stub, at the end of `execute`.
2. The server copies it out into memory of its own: Triton's response. An ensemble hands that on as it is.
3. The server copies an input into the region of the model that wants it.
4. The stub makes a NumPy array of it, which is a copy too, before `execute` begins.

So a hop of an ensemble costs four copies, of which `compute_input` and `compute_output` show two. A BLS caller
stands between: rule 2 copies into the caller's region, the caller's stub makes an array of it (rule 4), and the
next stage's input is copied from the caller's region: five. A handle (`serving.handles`) costs none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbook.errors import SettingError
from workbook.serving.pipelines import Pipeline, Stage

if TYPE_CHECKING:
    import pandas as pd

HANDLE_BYTES = 260
"""Size of a handle, about: a file's name, a nonce, type and shape as JSON."""
BYTES_PER_MB = 1e6
REGION, HEAP, ARRAY, HELD = "region", "heap", "array", "held"
KINDS = {
    REGION: "into a shared region that stays",
    HEAP: "into memory the server takes and gives back",
    ARRAY: "into a new NumPy array",
    HELD: "into a new NumPy array, kept beside others until the request is answered",
}
"""Where a copy goes decides what it costs: memory that is taken anew has to be cleared page by page first."""
CLIENT = "client"
_ITEM_BYTES = {"UINT8": 1, "FP16": 2, "FP32": 4, "INT64": 8}


@dataclass(frozen=True)
class Copy:
    """One copy of one tensor on its way through the server.

    Attributes:
        arrangement: which arrangement.
        hop: from whom to whom, "normalise → segment".
        tensor: its name.
        copied_by: process that copies: "stub of shift", "server".
        shown_in: the statistic that holds the time: `compute_infer`, `compute_input` or `compute_output`.
        stage: whose statistic.
        kind: a key of KINDS.
        place: `host` or `device`.
        bytes: of the tensor.
    """

    arrangement: str
    hop: str
    tensor: str
    copied_by: str
    shown_in: str
    stage: str
    kind: str
    place: str
    bytes: int


def ledger(pipeline: Pipeline, arrangement: str, tensor_bytes: Mapping[str, int]) -> list[Copy]:
    """Every copy that one request causes inside the server.

    What a transport copies between client and server is not in it: it is the same for all arrangements.

    Args:
        pipeline: stages and tensors.
        arrangement: a name from `arrangement_names()`.
        tensor_bytes: size of each of the pipeline's tensors in one request, bytes.

    Raises:
        SettingError: no such arrangement, or a tensor without a size.
    """
    missing = sorted({tensor.name for tensor in pipeline.tensors} - set(tensor_bytes))
    if missing:
        raise SettingError(f"tensor_bytes lacks {', '.join(missing)}: give the size of every tensor of the pipeline.")
    if arrangement.startswith("monolith"):
        whole = Stage("monolith", pipeline.inputs, pipeline.outputs)
        copies = _between_models(pipeline, [whole], tensor_bytes)
    elif arrangement.startswith("bls"):
        copies = _through_a_caller(pipeline, tensor_bytes, ARRAY if arrangement == "bls_async" else HELD)
    elif arrangement in ("ensemble", "handle"):
        small = dict.fromkeys(pipeline.big, HANDLE_BYTES) if arrangement == "handle" else {}
        copies = _between_models(pipeline, pipeline.stages, {**tensor_bytes, **small})
    else:
        raise SettingError(f"arrangement is {arrangement!r}: give monolith, monolith_x2, ensemble, bls or handle.")
    return [Copy(arrangement, *copy) for copy in copies]


_Row = tuple[str, str, str, str, str, str, str, int]


def _between_models(pipeline: Pipeline, stages: Sequence[Stage], sizes: Mapping[str, int]) -> list[_Row]:
    """Rules 1 to 4 where Triton itself hands the tensors from model to model."""
    makers = {name: stage.name for stage in stages for name in stage.outputs}
    rows: list[_Row] = []
    for stage in stages:
        for name in stage.inputs:
            hop = f"{makers.get(name, CLIENT)} → {stage.name}"
            rows += _into(stage.name, name, hop, sizes[name])
        for name in stage.outputs:
            takers = [other.name for other in stages if name in other.inputs]
            hop = f"{stage.name} → {', '.join(takers) or CLIENT}"
            rows += _out_of(stage.name, name, hop, sizes[name], HEAP)
    return rows


def _through_a_caller(pipeline: Pipeline, sizes: Mapping[str, int], kind: str) -> list[_Row]:
    """The same where a BLS caller stands between client and stages, and between the stages.

    A blocking caller's arrays go all at once and their pages with them; those of a coroutine outlive its request, and
    the next finds their memory there (no page fault was counted in it up to 24 MB, 716 and 748 in the blocking one).
    """
    rows: list[_Row] = []
    for name in pipeline.inputs:
        rows += _into("caller", name, f"{CLIENT} → caller", sizes[name])
    for stage in pipeline.stages:
        for name in stage.inputs:
            rows += _into(stage.name, name, f"caller → {stage.name}", sizes[name])
        for name in stage.outputs:
            hop = f"{stage.name} → caller"
            rows += _out_of(stage.name, name, hop, sizes[name], REGION)
            rows.append((hop, name, "stub of caller", "compute_infer", "caller", kind, "host", sizes[name]))
    for name in pipeline.outputs:  # it lies in the caller's region already: rule 1 has nothing to do
        rows.append((f"caller → {CLIENT}", name, "server", "compute_output", "caller", HEAP, "host", sizes[name]))
    return rows


def _into(stage: str, tensor: str, hop: str, size: int) -> list[_Row]:
    return [
        (hop, tensor, "server", "compute_input", stage, REGION, "host", size),
        (hop, tensor, f"stub of {stage}", "compute_infer", stage, ARRAY, "host", size),
    ]


def _out_of(stage: str, tensor: str, hop: str, size: int, target: str) -> list[_Row]:
    return [
        (hop, tensor, f"stub of {stage}", "compute_infer", stage, REGION, "host", size),
        (hop, tensor, "server", "compute_output", stage, target, "host", size),
    ]


def ledger_table(copies: Sequence[Copy], rates: pd.DataFrame) -> pd.DataFrame:
    """The ledger with the time each copy should take at this machine's measured rates.

    Args:
        copies: from `ledger`.
        rates: from `measuring.copies.bandwidth.measure_copy_rates`.

    Returns:
        A row a copy: the fields of `Copy` and `predicted_ms`.
    """
    import pandas as pd

    return pd.DataFrame([{**asdict(copy), "predicted_ms": copy_ms(copy.kind, copy.bytes, rates)} for copy in copies])


def mean_rates(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Rates for what was measured between two readings: `kind`, `bytes` and the mean `ms` of both.

    Args:
        before: of `measuring.copies.bandwidth.measure_copy_rates`.
        after: the same sizes once more.
    """
    import pandas as pd

    both = pd.concat([before, after])[["kind", "bytes", "ms"]]
    return both.groupby(["kind", "bytes"], sort=False).mean().reset_index()


def reading_of_rates(before: pd.DataFrame, after: pd.DataFrame) -> str:
    """How much the machine itself changed between the two readings."""
    joined = before.merge(after, on=["kind", "bytes"], suffixes=("", "_after"))
    large = joined[joined["bytes"] >= joined["bytes"].max() / 100]
    drift = float((large["ms_after"] / large["ms"]).median()) - 1
    return (
        f"After the measurement the same copies took {abs(drift):.0%} {'longer' if drift > 0 else 'less'} than before "
        "it. What was measured in between is compared with the mean of both readings."
    )


def rates_table(rates: pd.DataFrame) -> pd.DataFrame:
    """Rates side by side: a row a size, `bytes`, then `<kind>_ms`, and `<kind>_fresh_pages` where there are any."""
    import pandas as pd

    columns: dict[str, pd.Series] = {}
    for value in ("ms", "fresh_pages"):
        table = rates.pivot(index="bytes", columns="kind", values=value)
        columns |= {f"{kind}_{value}": table[kind] for kind in KINDS if kind in table and table[kind].any()}
    return pd.DataFrame(columns).reset_index()


def large_copies(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of `ledger_table` that copy a large tensor, one of at least a thousandth of the largest."""
    shown = table[table["bytes"] >= table["bytes"].max() / 1000]
    return shown.drop(columns="arrangement").reset_index(drop=True)


def copy_ms(kind: str, size_bytes: float, rates: pd.DataFrame) -> float:
    """Time of one copy, ms: between measured sizes by interpolation of ms, beyond them at the nearest size's rate.

    Args:
        kind: a key of KINDS.
        size_bytes: of the tensor.
        rates: columns `kind`, `bytes`, `ms`.

    Raises:
        SettingError: the rates do not hold that kind.
    """
    known = rates[rates["kind"] == kind].sort_values("bytes")
    if known.empty:
        raise SettingError(
            f"no rate was measured for copies of kind {kind!r}; there are {list(rates['kind'].unique())}."
        )
    sizes, times = known["bytes"].to_numpy(float), known["ms"].to_numpy(float)
    if size_bytes <= sizes[0]:
        return float(times[0] * size_bytes / sizes[0])
    if size_bytes >= sizes[-1]:
        return float(times[-1] * size_bytes / sizes[-1])
    return float(np.interp(size_bytes, sizes, times))


def predicted_ms(copies: Sequence[Copy], rates: pd.DataFrame, shown_in: Sequence[str] = ()) -> float:
    """Time of all the copies together, ms; only those that a statistic holds where `shown_in` names some."""
    return sum(copy_ms(copy.kind, copy.bytes, rates) for copy in copies if not shown_in or copy.shown_in in shown_in)


def copied_bytes(copies: Sequence[Copy]) -> int:
    """Bytes that the copies move."""
    return sum(copy.bytes for copy in copies)


def tensor_sizes(pipeline: Pipeline, rows: int, free: int) -> dict[str, int]:
    """Bytes of each tensor in a request.

    Args:
        pipeline: whose tensors.
        rows: batch elements of the request.
        free: the size of dimensions that vary: bytes of the relay's tensor or the road's JPEG, tokens of a passage.
    """
    return {
        tensor.name: _ITEM_BYTES[tensor.dtype] * rows * math.prod(free if size == -1 else size for size in tensor.dims)
        for tensor in pipeline.tensors
    }
