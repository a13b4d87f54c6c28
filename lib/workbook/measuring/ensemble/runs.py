"""One measurement of a member or of the ensemble: its rate, what Triton counted, and whose processor time it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from workbook.analysis.rates import completion_rate_per_s
from workbook.analysis.summaries import latency_percentile
from workbook.errors import LoadError, SettingError
from workbook.measuring.ensemble.conditions import EnsembleConditions
from workbook.measuring.ensemble.images import OUTPUTS, ImageRequest, Images, requests_for
from workbook.measuring.online.load import measure_load
from workbook.measuring.online.requests import TransportName
from workbook.measuring.online.scenario import Load, LoadResult
from workbook.measuring.online.windows import STABLE_WINDOWS
from workbook.measuring.processor_time import ProcessorTimes
from workbook.serving.ensemble_spec import ENSEMBLE, MEMBER_A, MEMBER_B, EnsembleVariant

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.ensemble_server import EnsembleServer
    from workbook.serving.statistics import ModelStatistics

MEMBERS = (MEMBER_A, MEMBER_B)
LENGTHENINGS = (1, 4, 16)
FEWEST_ANSWERS = 3


@dataclass(frozen=True)
class Probe:
    """How a point is measured. Making one touches nothing.

    Attributes:
        connections: requests in flight, each on a connection of its own.
        transport: `grpc` or `http`.
        warmup_s: time that is not measured, s.
        window_s: a third of the measured time, s.
        timeout_s: after which a request counts as failed, s.
    """

    connections: int = 128
    transport: TransportName = "http"
    warmup_s: float = 1.0
    window_s: float = 1.0
    timeout_s: float = 60.0

    def load(self, model: str) -> Load:
        """The closed loop that this probe keeps."""
        return Load(
            model=model,
            concurrency=self.connections,
            transport=self.transport,
            outputs=(OUTPUTS[model],),
            warmup_s=self.warmup_s,
            window_s=self.window_s,
            max_windows=STABLE_WINDOWS,
            stability_percent=1000,
            timeout_s=self.timeout_s,
        )


@dataclass(frozen=True, eq=False)
class Point:
    """A finished measurement.

    Attributes:
        model: whose rate it is: MEMBER_A, MEMBER_B or ENSEMBLE.
        variant: the configuration that was served.
        conditions: what it may be compared under.
        images_per_s: answered images per second, from the end of the warm-up to the last answer.
        latency_mean_ms, latency_p50_ms, latency_p99_ms: from sending to the decoded answer; a percentile is NaN where
            there are too few answers for it.
        failed: requests of the measured windows that ended in an error.
        errors: their messages, each once.
        statistics: Triton's counters of every model that took part: of a member alone without its warm-up, of an
            ensemble and its members over the whole run.
        processor_s_per_image: processor time by model, `server` and `client` for one image; empty where it is not
            known.
        records: the measured requests.
    """

    model: str
    variant: EnsembleVariant
    conditions: EnsembleConditions
    images_per_s: float
    latency_mean_ms: float
    latency_p50_ms: float
    latency_p99_ms: float
    failed: int
    errors: tuple[str, ...]
    statistics: Mapping[str, ModelStatistics] = field(repr=False)
    processor_s_per_image: Mapping[str, float] = field(repr=False)
    records: pd.DataFrame = field(repr=False)


def measure_point(
    served: EnsembleServer,
    model: str,
    images: Images,
    probe: Probe,
    records_path: Path,
    *,
    arm: str = "",
    run: int = 0,
    raw_to_b: bool = False,
) -> Point:
    """Keep the probe's connections busy with images and read what that cost.

    Args:
        served: the server, in the configuration to be measured.
        model: MEMBER_A, MEMBER_B or ENSEMBLE.
        images: sent in turn, again and again.
        probe: connections, transport and times.
        records_path: CSV file that the records are appended to.
        arm: written into the records; the model's name by default.
        run: written into the records.
        raw_to_b: send B the raw image in place of A's logits, as the reporter did.

    Raises:
        LoadError: no request was answered.
        ServerError: the server is gone; the message holds the end of its log.
    """
    if model not in OUTPUTS:
        raise SettingError(f"model is {model!r}: it must be one of {', '.join(OUTPUTS)}.")
    requests = requests_for(model, images, served.variant, raw_to_b=raw_to_b)
    models = (*MEMBERS, ENSEMBLE) if model == ENSEMBLE else (model,)
    before, times = _statistics(served, models), ProcessorTimes.take(served.server, MEMBERS)
    result = measure_long_enough(served, probe, model, requests, records_path, arm or model, run)
    used = ProcessorTimes.take(served.server, MEMBERS) - times
    after = _statistics(served, models)
    statistics = {name: after[name] - before[name] for name in models}
    per_image = used.per_image(statistics[model].success_count)
    to_the_end = result.to_the_end
    assert to_the_end is not None  # a closed loop has one
    if model in MEMBERS:
        statistics = {model: after[model] - to_the_end.warmed_up}
    answered = result.records[result.records["error"] == ""]
    latency_ms = (answered["decoded_ns"] - answered["sent_ns"]) / 1e6
    return Point(
        model=model,
        variant=served.variant,
        conditions=conditions_of(requests, served.variant, probe, model, images),
        images_per_s=completion_rate_per_s(to_the_end.ended_ns),
        latency_mean_ms=float(latency_ms.mean()),
        latency_p50_ms=latency_percentile(latency_ms, 50),
        latency_p99_ms=latency_percentile(latency_ms, 99),
        failed=result.failed,
        errors=tuple(sorted(set(result.records["error"]) - {""})),
        statistics=statistics,
        processor_s_per_image=per_image,
        records=result.records,
    )


def measure_long_enough(
    served: EnsembleServer,
    probe: Probe,
    model: str,
    requests: Sequence[ImageRequest],
    records_path: Path,
    arm: str,
    run: int,
) -> LoadResult:
    """Measure; where a machine is so slow that hardly a request ended in time, once more with windows as long again.

    Raises:
        LoadError: it is too slow for the longest windows too, or requests fail.
    """
    for lengthening in LENGTHENINGS:
        load = replace(probe, window_s=probe.window_s * lengthening).load(model)
        try:
            result = measure_load(served.server, load, requests, records_path, arm=arm, run=run, progress=False)
        except LoadError as error:
            if "no request ended" not in str(error) or lengthening == LENGTHENINGS[-1]:
                raise
            continue
        answered = result.records.loc[result.records["error"] == "", "decoded_ns"]
        if answered.nunique() >= FEWEST_ANSWERS:
            return result
    raise LoadError(f"{len(answered)} answers of {model} in {load.max_windows * load.window_s:g} s: measure longer.")


def conditions_of(
    requests: Sequence[ImageRequest], variant: EnsembleVariant, probe: Probe, model: str, images: Images
) -> EnsembleConditions:
    """What a measurement with these requests may be compared under."""
    handed_over = images.masks[0] if variant.hop == "mask" else images.logits[0]
    (sent,) = requests[0].inputs.values()
    b_input = sent[0] if variant.b_max_batch else sent
    return EnsembleConditions(
        images_per_request=requests[0].rows,
        transport=probe.transport,
        connections=probe.connections,
        image=_words(images.tensor[0]),
        b_input=_words(b_input if model == MEMBER_B else handed_over),
        a_max_batch=variant.a_max_batch,
    )


def _words(array: object) -> str:
    shape = "x".join(map(str, array.shape))  # type: ignore[attr-defined]
    return f"{array.dtype} {shape}"  # type: ignore[attr-defined]


def _statistics(served: EnsembleServer, models: Sequence[str]) -> dict[str, ModelStatistics]:
    return {model: served.server.statistics(model, settled=True) for model in models}
