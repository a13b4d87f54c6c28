"""The whole comparison of batch and online: measured once, kept as records and facts, read back without a server.

`open_study` either prepares a measurement or, with the parameter `replay`, opens an earlier one. What comes after reads
the records in either case, so a figure drawn again is the same figure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.analysis.split import LatencySplit
from workbook.errors import SettingError
from workbook.measuring.comparison.measurement import Work, facts_before, measure, prepare
from workbook.measuring.comparison.protocol import Protocol
from workbook.measuring.comparison.switches import Plan, make_plan
from workbook.measuring.records import BATCH_COLUMNS, REQUEST_COLUMNS, read_records
from workbook.past_runs import all_runs, find_past_run
from workbook.runs import Run, read_json, write_json

if TYPE_CHECKING:
    import pandas as pd

    from workbook.settings import Settings

_FACTS = "study.json"
_NEEDED_FACTS = frozenset(
    [
        "plan",
        "batch_size",
        "repeats",
        "rows",
        "corpus",
        "corpus_measures",
        "corpus_repairs",
        "flop_per_padded_token",
        "ceiling_flop_per_s",
        "model_load_s",
        "prediction",
        "peer",
        "cosines",
        "arrivals",
        "fair_split",
    ]
)


@dataclass(eq=False)
class Study:
    """A measured comparison, or one that is about to be measured.

    Attributes:
        source: where records are read from.
        facts: what was found beside records, JSON values.
        plan: the arms and the switches between them.
        work: what measuring needs; None where a study was opened from its records.
    """

    source: Run
    facts: dict[str, Any] = field(repr=False)
    plan: Plan = field(repr=False)
    work: Work | None = field(default=None, repr=False)

    @property
    def replayed_from(self) -> str:
        """Name of the run whose records are shown; empty where this run measured them."""
        return "" if self.work else self.source.directory.resolve().name

    @property
    def batch_size(self) -> int:
        """Rows of a batch: times are given for so many."""
        return int(self.facts["batch_size"])

    @property
    def runs(self) -> int:
        """Runs of each arm."""
        return int(self.facts["repeats"])

    def measure(self, *, progress: bool = True) -> None:
        """Measure everything and keep it; of an opened study nothing is measured.

        Raises:
            LoadError: an arm failed; the records so far are in the run directory.
            ServerError: the server died; the message holds the end of its log.
        """
        if self.work:
            for earlier in _facts_path(self.source).parent.glob("*.csv"):  # the cell was run before: measure afresh
                earlier.unlink()
            self.facts.update(measure(self.work, self.plan, self.source, progress=progress))
            self.keep_facts()

    def keep_facts(self) -> None:
        """Write the facts beside the records."""
        write_json(_facts_path(self.source), self.facts)

    def corpus_table(self, name: str) -> pd.DataFrame:
        """What was read: its `measures`, or the `repairs` that rows needed."""
        import pandas as pd

        return pd.DataFrame(self.facts[f"corpus_{name}"])

    def records(self, block: str, protocol: Protocol) -> pd.DataFrame:
        """Raw records of an arm: BATCH_COLUMNS or REQUEST_COLUMNS."""
        columns = REQUEST_COLUMNS if protocol.side == "online" else BATCH_COLUMNS
        return read_records(self.source.records_path(f"{block}-{protocol.key}"), columns)

    def batch_ms(self, block: str, protocol: Protocol) -> tuple[float, ...]:
        """Time for `batch_size` rows in each run, ms, by the protocol's own clock."""
        records = self.records(block, protocol)
        return tuple(
            busy_ms(run, protocol) / int(run["rows"].sum()) * self.batch_size
            for _, run in records.groupby("run", sort=True)
        )

    def rows_per_s(self, block: str, protocol: Protocol) -> tuple[float, ...]:
        """Rows per second in each run."""
        return tuple(self.batch_size / ms * 1e3 for ms in self.batch_ms(block, protocol))

    def table(self, name: str) -> pd.DataFrame:
        """A table of its own kind: PEER, CEILING, PLAIN, REGIMES."""
        import pandas as pd

        return pd.read_csv(self.source.records_path(name))

    def requests(self, name: str) -> pd.DataFrame:
        """Request records of ARRIVALS or REPEATS."""
        return read_records(self.source.records_path(name), REQUEST_COLUMNS)

    def split(self) -> LatencySplit:
        """Where the time of a request of the fair online arm goes."""
        return LatencySplit(**self.facts["fair_split"])


def open_study(settings: Settings, run: Run) -> Study:
    """Prepare a measurement: corpus, encoder, export, prediction; or open the records that `settings.replay` names.

    Raises:
        SettingError: no such run, or it holds no records of this notebook.
        CorpusError, ModelError: the corpus or the model cannot be read.
    """
    if settings.replay:
        return _opened(settings, run)
    work = prepare(settings)
    facts = facts_before(work)
    study = Study(run, facts, make_plan(**facts["plan"]), work)
    study.keep_facts()
    return study


def busy_ms(records: pd.DataFrame, protocol: Protocol) -> float:
    """Time that one run's rows took, ms.

    A loop's batches are added up, from token ids in memory to where its clock stops. Streams and requests overlap:
    there it is the time from the first to the last of them.
    """
    if protocol.side == "online":
        return float(records["decoded_ns"].max() - records["sent_ns"].min()) / 1e6
    if protocol.streams > 1 or protocol.cut == "tokens" or protocol.engine == "openvino":
        return float(records["pooled_ns"].max() - records["tokenised_ns"].min()) / 1e6
    end = records["inferred_ns" if protocol.clock == "launched" else "pooled_ns"]
    return float((end - records["tokenised_ns"]).sum()) / 1e6


def _facts_path(run: Run) -> Path:
    return run.records_path("study").with_name(_FACTS)


def _opened(settings: Settings, run: Run) -> Study:
    source = Run(find_replayed(settings.replay, run), run.notebook)
    path = source.directory / "records" / run.notebook / _FACTS
    facts = dict(read_json(path))
    if missing := _NEEDED_FACTS - facts.keys():
        raise SettingError(
            f"{source.directory} was measured by another version of this workbook (its facts lack "
            f"{', '.join(sorted(missing))}): replay a newer run, or measure again with replay: ''."
        )
    return Study(source, facts, make_plan(**facts["plan"]))


def find_replayed(replay: str, run: Run) -> Path:
    """The run to draw again; `latest` and `previous` count other runs that have records and results of this notebook.

    Raises:
        SettingError: there is none, or its measurement did not come to its end.
    """
    complete = [path for path in all_runs() if _is_complete(path, run) and path.resolve() != run.directory.resolve()]
    ended = [path for path in complete if (path / "results" / f"{run.notebook}.json").is_file()]
    directory = find_past_run(replay, ended, f"records of {run.notebook} to replay")
    if not _is_complete(directory, run):
        raise SettingError(f"{directory} has no complete records of {run.notebook}: choose a run that measured it.")
    return directory


def _is_complete(directory: Path, run: Run) -> bool:
    path = directory / "records" / run.notebook / _FACTS
    return path.is_file() and "fair_split" in read_json(path)
