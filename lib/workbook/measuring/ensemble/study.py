"""The measurements of the ensemble notebook: cases, a curve, causes of loss, a search that can be resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.analysis.bottleneck import Bound
from workbook.analysis.ensemble_search import VARIED, point_row
from workbook.analysis.loss_causes import Setting
from workbook.errors import LoadError
from workbook.measuring.ensemble.conditions import require_same_conditions
from workbook.measuring.ensemble.images import Images, requests_for
from workbook.measuring.ensemble.runs import Point, Probe, measure_point
from workbook.measuring.online.load import send_all
from workbook.serving.ensemble_spec import ENSEMBLE, MEMBER_A, MEMBER_B, EnsembleVariant

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.ensemble_server import EnsembleServer

ALL_THREE = (MEMBER_A, MEMBER_B, ENSEMBLE)
WARM_UPS = 2
"""Batches of each of A's instances before anything is measured: with none, A's ceiling came out a fifth too low."""


@dataclass(frozen=True, eq=False)
class Case:
    """One configuration, its members and its ensemble, measured under equal conditions.

    Attributes:
        name: in words.
        variant: what was served.
        points: measurements by model, in order of their rounds.
    """

    name: str
    variant: EnsembleVariant
    points: dict[str, list[Point]]

    def rate(self, model: str) -> float:
        """Mean rate of a model, images per second; NaN where it was not measured."""
        rates = self.rates(model)
        return sum(rates) / len(rates) if rates else float("nan")

    def rates(self, model: str) -> list[float]:
        """Rate of each round, images per second."""
        return [point.images_per_s for point in self.points.get(model, [])]

    @property
    def bound(self) -> Bound:
        """The slower member: what the reporter expected of the ensemble.

        Raises:
            NotComparableError: members and ensemble were not measured alike; the message names the field.
        """
        for model in (MEMBER_A, MEMBER_B):
            for member, ensemble in zip(self.points[model], self.points.get(ENSEMBLE, []), strict=False):
                require_same_conditions(model, member.conditions, ENSEMBLE, ensemble.conditions)
        slower = min((MEMBER_A, MEMBER_B), key=self.rate)
        return Bound(slower, self.rate(slower))

    @property
    def ratio(self) -> float:
        """Ensemble over bound: 1 loses nothing."""
        return self.rate(ENSEMBLE) / self.bound.per_s


@dataclass(frozen=True, eq=False)
class Study:
    """A server, images and a way to measure.

    Attributes:
        served: the server.
        images: sent in turn.
        probe: connections, transport, times.
        records: gives the file for the records of a measurement of that name.
        progress: show progress bars.
    """

    served: EnsembleServer
    images: Images
    probe: Probe
    records: Callable[[str], Path]
    progress: bool = True

    def measure(self, model: str, variant: EnsembleVariant, name: str, *, connections: int = 0, run: int = 0) -> Point:
        """One measurement; `connections` 0 takes the probe's."""
        self.serve(variant)
        probe = replace(self.probe, connections=connections or self.probe.connections)
        return measure_point(self.served, model, self.images, probe, self.records(name), arm=f"{name} {model}", run=run)

    def serve(self, variant: EnsembleVariant) -> None:
        """Have the server serve a configuration, warmed up where A was loaded again for it."""
        self.served.configure(variant)
        if self.served.cold:
            self.warm_up()

    def warm_up(self) -> None:
        """Let each instance of A run a few full batches: its first ones are many times slower."""
        variant = self.served.variant
        count = min(variant.a_max_batch * variant.a_instances, self.probe.connections)
        requests = requests_for(ENSEMBLE, self.images, variant)
        cycled = [requests[number % len(requests)] for number in range(WARM_UPS * count)]
        load = replace(self.probe, connections=count).load(ENSEMBLE)
        send_all(self.served.server, load, cycled, self.records("warm_up"), arm="warm-up", progress=False)
        self.served.cold = False

    def case(self, name: str, variant: EnsembleVariant, models: Sequence[str] = ALL_THREE, repeats: int = 1) -> Case:
        """Measure a configuration; the models take turns, forwards in even rounds, backwards in odd ones."""
        points: dict[str, list[Point]] = {model: [] for model in models}
        for run, model in self._bar(_rounds(models, repeats), repeats * len(models), name):
            points[model].append(self.measure(model, variant, name, run=run))
        return Case(name, variant, points)

    def curve(self, base: Case, connections: Sequence[int]) -> pd.DataFrame:
        """The ensemble's rate and latency over connections, a row each, from `point_row`.

        Args:
            base: the configuration; its own measurements are one more row, averaged over their rounds.
            connections: the other numbers of them.
        """
        import pandas as pd

        others = [count for count in connections if count != self.probe.connections]
        bar = self._bar(iter(others), len(others), "latency against throughput")
        points = [self.measure(ENSEMBLE, base.variant, "curve", connections=count) for count in bar]
        rows = pd.DataFrame([point_row(point) for point in (*points, *base.points[ENSEMBLE])])
        return rows.groupby([*VARIED, "connections"], as_index=False).mean()

    def rates(self, settings: Sequence[Setting], repeats: int) -> dict[Setting, list[float]]:
        """The ensemble's rate in each setting, images per second, a value a round."""
        rates: dict[Setting, list[float]] = {setting: [] for setting in settings}
        for run, setting in self._bar(_rounds(settings, repeats), repeats * len(settings), "causes of loss"):
            point = self.measure(ENSEMBLE, setting.variant, "causes", connections=setting.connections, run=run)
            rates[setting].append(point.images_per_s)
        return rates

    def search(self, variants: Sequence[EnsembleVariant], kept: Path) -> pd.DataFrame:
        """Measure the ensemble in each configuration; what the file already holds is not measured again.

        Args:
            variants: the configurations.
            kept: JSON lines, one a measurement, written as soon as it ends.

        Returns:
            A row a configuration, from `point_row`, in the order given.
        """
        import pandas as pd

        known = _read_kept(kept)
        rows = []
        for variant in self._bar(iter(variants), len(variants), "search"):
            key = _key(variant, self.probe)
            if key not in known:
                row = point_row(self.measure(ENSEMBLE, variant, "search"))
                _keep(kept, key, row)
                known[key] = row
            rows.append(known[key])
        return pd.DataFrame(rows)

    def again(self, variants: Sequence[EnsembleVariant], repeats: int) -> pd.DataFrame:
        """Measure the ensemble in a few configurations in turn; a row each, from `point_row`, averaged over rounds."""
        import pandas as pd

        turns = self._bar(_rounds(variants, repeats), repeats * len(variants), "A's batches")
        rows = [point_row(self.measure(ENSEMBLE, variant, "search", run=run)) for run, variant in turns]
        return pd.DataFrame(rows).groupby(list(VARIED), sort=False, as_index=False).mean()

    def _bar(self, things: Iterator[Any], total: int, name: str) -> Any:
        from tqdm.auto import tqdm

        return tqdm(things, total=total, desc=name, unit="point", leave=False, disable=not self.progress)


def _rounds(things: Sequence[Any], repeats: int) -> Iterator[tuple[int, Any]]:
    for run in range(repeats):
        for thing in things if run % 2 == 0 else reversed(things):
            yield run, thing


def _key(variant: EnsembleVariant, probe: Probe) -> str:
    return json.dumps({**asdict(variant), **asdict(probe)}, sort_keys=True)


def _keep(kept: Path, key: str, row: dict[str, Any]) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"key": key, "row": row}) + "\n")


def _read_kept(kept: Path) -> dict[str, dict[str, Any]]:
    """Finished measurements by key; a line cut off by a crash is left out."""
    found: dict[str, dict[str, Any]] = {}
    for line in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ():
        try:
            entry = json.loads(line)
            found[entry["key"]] = entry["row"]
        except ValueError:
            continue
        except (KeyError, TypeError) as error:
            raise LoadError(f"{kept} is no file of this search: delete it and measure again.") from error
    return found
