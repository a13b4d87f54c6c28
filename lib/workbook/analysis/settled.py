"""The answer: every ratio of a study with its interval, who owns the difference, where the choice flips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

from workbook.analysis.breakeven import BreakEven, Costs, break_even
from workbook.analysis.comparison import verdict_of
from workbook.analysis.intervals import Interval, ratio_interval
from workbook.analysis.replication import TTest, naive_t_test
from workbook.analysis.waterfall import Account, StepEffect, account, effects_over_orders, ratio_of, waterfall
from workbook.errors import NotComparableError
from workbook.measuring.comparison.blocks import CEILING, MAIN, PEER, PLAIN, SWITCHES, main_arms
from workbook.measuring.comparison.protocol import Protocol
from workbook.measuring.comparison.study import Study

if TYPE_CHECKING:
    import pandas as pd

QUESTION = "How much faster is batch than online on this machine, and what makes up the difference?"


@dataclass(eq=False)
class Settled:
    """What a study says. Everything is worked out from its records when it is asked for.

    Attributes:
        study: measured, or opened from records.
        smallest_difference_percent: two arms closer than this are called equal.
    """

    study: Study
    smallest_difference_percent: float = 5.0
    arms: dict[str, Protocol] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.arms = main_arms(self.study.plan)

    def rows_per_s(self, name: str) -> tuple[float, ...]:
        """Rows per second of a main arm in each run."""
        return self.study.rows_per_s(MAIN, self.arms[name])

    def faster(self, first: str, second: str) -> Interval:
        """How many times as fast the first main arm is, over paired runs."""
        return ratio_interval(self.rows_per_s(first), self.rows_per_s(second))

    def require_same_work(self, first: str, second: str) -> None:
        """Refuse two main arms that did not do the same work in each run.

        Raises:
            NotComparableError: rows, real tokens or padded tokens of a run differ.
        """
        columns = ["rows", "real_tokens", "padded_tokens"]
        a, b = (self.study.records(MAIN, self.arms[name]).groupby("run")[columns].sum() for name in (first, second))
        if not a.equals(b):
            raise NotComparableError(
                f"{first} and {second} did not do the same work: {a.sum().to_dict()} against {b.sum().to_dict()}."
            )

    def verdict(self, first: str, second: str) -> str:
        """The same in one sentence, held against the smallest difference that matters."""
        return verdict_of(first, second, self.faster(first, second), self.smallest_difference_percent)

    @cached_property
    def throughput(self) -> pd.DataFrame:
        """`label`, `run`, `rows_per_s` of the main arms and of the library to beat."""
        import pandas as pd

        rows = [(name, run, rate) for name in self.arms for run, rate in enumerate(self.rows_per_s(name))]
        peer = self.study.table(PEER)
        rows += [
            (self.study.facts["peer"], int(run), rate)
            for run, rate in zip(peer["run"], peer["rows"] / peer["seconds"], strict=True)
        ]
        return pd.DataFrame(rows, columns=["label", "run", "rows_per_s"])

    # --- the article's protocol -------------------------------------------------------------------------------------

    @cached_property
    def article_latencies(self) -> pd.DataFrame:
        """Time a batch of both article arms, by its own clock, in the columns of `summaries.latency_table`."""
        return self._latencies("article batch", "article online")

    @cached_property
    def fair_latencies(self) -> pd.DataFrame:
        """Time a batch of the three arms on equal conditions, from token ids to an array."""
        return self._latencies("fair PyTorch", "fair batch", "fair online")

    @property
    def article_test(self) -> TTest:
        """The article's t-test on our batches, all runs together."""
        groups = self.article_latencies.groupby("arm")["latency_ms"]
        return naive_t_test(groups.get_group("article online"), groups.get_group("article batch"))

    def _latencies(self, *names: str) -> pd.DataFrame:
        import pandas as pd

        from workbook.analysis.summaries import latency_table

        frames = []
        for name in names:
            records = self.study.records(MAIN, self.arms[name]).assign(arm=name)
            if self.arms[name].side == "batch":
                records = records.assign(start_ns=records["tokenised_ns"])
                if self.arms[name].clock == "launched":
                    records = records.assign(pooled_ns=records["inferred_ns"])
            frames.append(latency_table(records))
        return pd.concat(frames, ignore_index=True)

    # --- the waterfall ----------------------------------------------------------------------------------------------

    @property
    def fair_switches(self) -> set[str]:
        """Names of the switches that make the conditions equal."""
        return {switch.name for switch in self.study.plan.fair}

    @cached_property
    def effects(self) -> list[StepEffect]:
        """The steps in the order listed."""
        return waterfall(self.study.plan.orders()[0], self._switch_times)

    @cached_property
    def orders(self) -> pd.DataFrame:
        """Each switch's factor in both orders."""
        return effects_over_orders(self.study.plan, self._switch_times)

    @property
    def states(self) -> tuple[Interval, Interval, Interval]:
        """Online / batch of the article's, the fair and the tuned state, on the waterfall's rows."""
        plan = self.study.plan
        states = (plan.article, plan.fair_state, plan.tuned_state)
        return tuple(ratio_of(state, self._switch_times) for state in states)  # type: ignore[return-value]

    @cached_property
    def account(self) -> Account:
        """Who owns the article's ratio, as measured on all rows."""
        return account(
            self.faster("article batch", "article online").estimate,
            self.effects,
            fmean(self.study.batch_ms(MAIN, self.arms["fair batch"])),
            self.study.split(),
            self.fair_switches,
        )

    def _switch_times(self, protocol: Protocol) -> Sequence[float]:
        if protocol not in self._times:
            self._times[protocol] = self.study.batch_ms(SWITCHES, protocol)
        return self._times[protocol]

    @cached_property
    def _times(self) -> dict[Protocol, Sequence[float]]:
        return {}

    # --- speed ------------------------------------------------------------------------------------------------------

    @property
    def best_batch(self) -> str:
        """Name of the fastest exact batch arm."""
        exact = [name for name in ("tuned batch", "tuned OpenVINO") if name in self.arms]
        return max(exact, key=lambda name: fmean(self.rows_per_s(name)))

    @property
    def over_peer(self) -> Interval:
        """The fastest exact batch arm over sentence-transformers, both from text to embeddings."""
        peer = self.study.table(PEER)
        ours = self._from_text(self.arms[self.best_batch])
        return ratio_interval(ours, list(peer["rows"] / peer["seconds"]))

    @property
    def of_ceiling(self) -> Interval:
        """Share of the matrix product's rate that the fastest batch arm's real tokens need, run by run."""
        records = self.study.records(MAIN, self.arms[self.best_batch])
        flop_per_token = self.study.facts["flop_per_padded_token"]
        done = [
            flop_per_token * run["padded_tokens"].sum() / ((run["pooled_ns"].max() - run["tokenised_ns"].min()) / 1e9)
            for _, run in records.groupby("run", sort=True)
        ]
        return ratio_interval(done, list(self.study.table(CEILING)["flop_per_s"]))

    @property
    def plain_check(self) -> Interval:
        """Rows per second of our client over those of a loop in plain Python, on the same requests."""
        plain = self.study.table(PLAIN)
        ours = self.study.rows_per_s(SWITCHES, self.study.plan.fair_state.online)
        return ratio_interval(ours, list(plain["rows"] / plain["seconds"]))

    def _from_text(self, protocol: Protocol) -> list[float]:
        records = self.study.records(MAIN, protocol)
        return [
            float(run["rows"].sum() / (run["pooled_ns"].max() - run["start_ns"].min()) * 1e9)
            for _, run in records.groupby("run", sort=True)
        ]

    # --- break-even -------------------------------------------------------------------------------------------------

    def costs(self, price_per_hour: float, objective_s: float, job_start_s: float) -> Costs:
        """What the break-even is worked out from: the tuned rates, a row's own latency, the start of a job."""
        lightest = self.study.facts["arrivals"][0]
        return Costs(
            batch_rows_per_s=fmean(self.rows_per_s("tuned batch")),
            online_rows_per_s=fmean(self.rows_per_s("tuned online")),
            row_ms=lightest["p50_ms"],
            start_s=job_start_s + self.study.facts["model_load_s"],
            price_per_hour=price_per_hour,
            objective_s=objective_s,
        )

    def break_even(self, costs: Costs) -> BreakEven:
        """Where the choice flips, with its band."""
        return break_even(costs, self.rows_per_s("tuned batch"), self.rows_per_s("tuned online"))

    @property
    def arrivals(self) -> pd.DataFrame:
        """Rows that came one by one at random: rate offered and answered, latency, rows put together."""
        import pandas as pd

        return pd.DataFrame(self.study.facts["arrivals"])

    # --- results ----------------------------------------------------------------------------------------------------

    def results(self, flip: BreakEven, figure: str) -> dict[str, Any]:
        """The headline numbers, as they are written to the results file.

        Args:
            flip: from `break_even`.
            figure: name of the figure on the report's first screen.
        """
        from workbook.analysis.summaries import as_json_values

        for name in ("fair", "tuned"):
            self.require_same_work(f"{name} batch", f"{name} online")
        article, fair, tuned = (self._ratio(f"{name} batch", f"{name} online") for name in ("article", "fair", "tuned"))
        whole = self._ratio("fair PyTorch", "fair online")
        test, mean = self.article_test, self.article_latencies.groupby("arm")["latency_ms"].mean()
        engine = self._ratio("fair PyTorch", "fair batch")
        return {
            "batch_rows_per_s": fmean(self.rows_per_s("fair PyTorch")),
            "online_rows_per_s": fmean(self.rows_per_s("fair online")),
            **whole,
            "engine": engine,
            "serving": fair,
            "article_protocol": {
                "batch_mean_ms": float(mean["article batch"]),
                "online_mean_ms": float(mean["article online"]),
                "ratio": article["ratio"],
                "ratio_ci95": article["ratio_ci95"],
                "t": test.t,
                "p": test.p,
            },
            "fair": fair,
            "tuned": {
                "batch_rows_per_s": fmean(self.rows_per_s("tuned batch")),
                "online_rows_per_s": fmean(self.rows_per_s("tuned online")),
                **tuned,
            },
            "waterfall": [effect.as_json() for effect in self.effects],
            "waterfall_orders": as_json_values(self.orders),
            "unexplained_share": self.account.unexplained_share,
            "break_even_rows_per_s": flip.rows_per_s,
            "break_even_band": list(flip.band) if flip.band else None,
            "best_batch": {
                "arm": self.best_batch,
                "rows_per_s": fmean(self.rows_per_s(self.best_batch)),
                "peer": self.study.facts["peer"],
                "over_peer": _json(self.over_peer),
                "share_of_ceiling": _json(self.of_ceiling),
            },
            "plain_check": _json(self.plain_check),
            "min_cosine": min(self.study.facts["cosines"].values()),
            "cosines": self.study.facts["cosines"],
            "rows_per_arm": self.study.facts["rows"],
            "rows_per_switch": self.study.facts.get("switch_rows"),
            "runs_per_arm": self.study.runs,
            "latency_split_ms": self.study.split().parts_ms,
            "replayed_from": self.study.replayed_from,
            "runs": as_json_values(self.throughput),
            "headline": self.headline(figure),
        }

    def headline(self, figure: str) -> dict[str, Any]:
        """What the report's first screen shows."""
        article, fair, tuned = (self.faster(f"{name} batch", f"{name} online") for name in ("article", "fair", "tuned"))
        return {
            "question": QUESTION,
            "answer": (
                f"By the article's protocol batch is {article.estimate:.2f} times as fast as online here, on equal "
                f"conditions {fair.estimate:.2f} times and with both sides tuned {tuned.estimate:.2f} times; "
                f"{self.account.unexplained_share:.1%} of the way from the first number to equality is unexplained."
            ),
            "numbers": [
                {"label": f"batch / online, {words}", "value": f"{ratio.estimate:.2f}x", "detail": _words(ratio)}
                for words, ratio in (
                    ("the article's protocol", article),
                    ("equal conditions", fair),
                    ("both tuned", tuned),
                )
            ],
            "figure": figure,
        }

    def _ratio(self, first: str, second: str) -> dict[str, Any]:
        return _json(self.faster(first, second))


def _json(interval: Interval) -> dict[str, Any]:
    return {"ratio": interval.estimate, "ratio_ci95": [interval.low, interval.high] if interval.known else None}


def _words(interval: Interval) -> str:
    if not interval.known:
        return interval.note
    return f"95% interval {interval.low:.2f} to {interval.high:.2f}"
