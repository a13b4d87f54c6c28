"""Tables and sentences that hold our measurement beside the article's and judge both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from workbook.analysis.intervals import BLOCKS, Interval, effective_sample_size
from workbook.analysis.published import published_figures
from workbook.analysis.replication import (
    block_bootstrap_ratio,
    deviation_of_one,
    naive_t_test,
    published_batches,
    ratio_of_medians,
    t_of_summaries,
)

if TYPE_CHECKING:
    import pandas as pd

    from workbook.analysis.settled import Settled
    from workbook.measuring.comparison.study import Study

CORPUS_ROWS, LABELLED_ROWS, ARTICLE_BATCH = 10_876, 7_613, 32
PAIRS = (
    ("article batch", "article online"),
    ("fair PyTorch", "fair online"),
    ("fair PyTorch", "fair batch"),
    ("fair batch", "fair online"),
    ("tuned batch", "tuned online"),
)


def article_comparison(answer: Settled) -> pd.DataFrame:
    """What the article concludes from, published and measured here: `quantity`, `published`, `here`."""
    import pandas as pd

    times = published_figures("article_batch_times").set_index("arm")
    stated = published_figures("article_significance").set_index("quantity")["value"]
    groups = answer.article_latencies.groupby("arm")["latency_ms"]
    online, batch = groups.get_group("article online"), groups.get_group("article batch")
    test = naive_t_test(online, batch)
    rows = [
        ("mean, online (ms)", times.loc["online", "mean_ms"], online.mean()),
        ("mean, batch (ms)", times.loc["batch", "mean_ms"], batch.mean()),
        ("ratio of means", _over(times, "mean_ms"), online.mean() / batch.mean()),
        ("ratio of medians", _over(times, "p50_ms"), online.median() / batch.median()),
        ("t over batches", stated["t_statistic"], test.t),
        ("p over batches", stated["p_value"], test.p),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["quantity", "published", "here"])


def describe_beside(answer: Settled) -> pd.DataFrame:
    """The article's summary of batch times with ours beside it, ms; it does not state how many batches it has."""
    from workbook.analysis.summaries import describe_latency

    stated = published_figures("article_batch_times").set_index("arm")
    columns = ["mean_ms", "std_ms", "min_ms", "p25_ms", "p50_ms", "p75_ms", "max_ms"]
    table = describe_latency(answer.article_latencies)
    for side in ("batch", "online"):
        values = [float("nan"), *(float(stated.loc[side, column]) for column in columns)]
        table.insert(0 if side == "batch" else 1, f"published: {side}", values)
    return table.rename(columns={f"article {side}": f"here: {side}" for side in ("batch", "online")})


def published_doubts() -> str:
    """What the published means, deviations and t say of each other, in Markdown."""
    times = published_figures("article_batch_times").set_index("arm")
    online, batch = ({str(k): v for k, v in times.loc[arm].items()} for arm in ("online", "batch"))
    stated = published_figures("article_significance").set_index("quantity")["value"]
    n = published_batches(online, batch, float(stated["t_statistic"]))
    whole = -(-CORPUS_ROWS // ARTICLE_BATCH)
    labelled = -(-LABELLED_ROWS // ARTICLE_BATCH)
    fits, would = t_of_summaries(online, batch, n), t_of_summaries(online, batch, whole)
    alone = deviation_of_one(batch["max_ms"], batch["mean_ms"], n)
    return (
        f"- The stated t fits **{n} batches** an arm (t = {fits.t:.2f}, p = {fits.p:.2e}), which is what the "
        f"{LABELLED_ROWS:,} rows with a label make ({labelled}); the {CORPUS_ROWS:,} rows named in the text make "
        f"{whole}, and t = {would.t:.1f}.\n"
        f"- The batch side's deviation, {batch['std_ms']:.2f} ms, is **one batch**: a single one of "
        f"{batch['max_ms']:.0f} ms among {n} of {batch['p50_ms']:.0f} ms makes {alone:.1f} ms alone. It will have been "
        "the first, with nothing warmed up. “Similar variability” is the price of one warm-up.\n"
        f"- The medians' ratio is {online['p50_ms'] / batch['p50_ms']:.1f}, the means' "
        f"{online['mean_ms'] / batch['mean_ms']:.1f}: that one batch also makes the means differ less."
    )


def verdict_table(answer: Settled) -> pd.DataFrame:
    """The main arms in pairs: `compared`, `ratio`, bounds, `verdict`."""
    import pandas as pd

    rows = []
    for first, second in PAIRS:
        ratio = answer.faster(first, second)
        rows.append((f"{first} / {second}", ratio.estimate, ratio.low, ratio.high, answer.verdict(first, second)))
    return pd.DataFrame(rows, columns=["compared", "ratio", "ci95_low", "ci95_high", "verdict"])


def cosine_table(answer: Settled) -> pd.DataFrame:
    """Lowest cosine of each arm to the reference: `arm`, `min_cosine`."""
    import pandas as pd

    return pd.DataFrame(list(answer.study.facts["cosines"].items()), columns=["arm", "min_cosine"])


def speed_sentences(answer: Settled) -> str:
    """How fast the best exact batch arm and the tuned online arm are, against what, in Markdown."""
    peer, ceiling = answer.over_peer, answer.of_ceiling
    online = answer.faster("tuned online", "tuned batch")
    plain = answer.plain_check
    best = answer.arms[answer.best_batch].label
    return (
        f"- The fastest exact batch arm ({best}) is **{peer.estimate:.2f} times** as fast as "
        f"{answer.study.facts['peer']}{_bounds(peer)}, both from text to embeddings.\n"
        f"- It computes at **{ceiling.estimate:.0%}** of the rate of a bare matrix product{_bounds(ceiling)}.\n"
        f"- The tuned online arm reaches **{online.estimate:.0%}** of the batch job's rows/s on the same engine"
        f"{_bounds(online)}.\n"
        f"- Checked by a loop in plain Python around Triton's own client: ours is {plain.estimate:.2f} times as fast "
        f"as that on the same requests{_bounds(plain)}."
    )


def same_arm_runs(study: Study) -> dict[int, Sequence[float]]:
    """Latencies of the repeated arm in order of time, ms, by run."""
    records = study.requests("repeats")
    good = records[(records["window"] >= 0) & (records["error"] == "")].sort_values("request")
    times = good.assign(ms=(good["decoded_ns"] - good["sent_ns"]) / 1e6)
    return {int(run): list(group["ms"]) for run, group in times.groupby("run", sort=True)}


def interval_table(answer: Settled) -> pd.DataFrame:
    """Ratio of the fair arms' batch times by three ways: over requests, over blocks of them, over runs."""
    import pandas as pd

    names = "fair online", "fair batch"
    groups = answer.fair_latencies.groupby("arm")
    runs = [[list(run["latency_ms"]) for _, run in groups.get_group(name).groupby("run")] for name in names]
    online, batch = ([value for run in side for value in run] for side in runs)
    blocks = max(2, min(BLOCKS, len(online) // 4))
    ways = {
        "over batches, each taken for independent": _naive_ratio(online, batch),
        f"over {blocks} blocks of neighbouring batches": block_bootstrap_ratio(online, batch, blocks),
        "over runs: means": _mean_ratio(runs),
        "over runs: medians": ratio_of_medians(*runs),
    }
    effective = min(effective_sample_size(online), effective_sample_size(batch))
    rows = [(way, ratio.estimate, ratio.low, ratio.high, n) for (way, ratio), n in zip(
        ways.items(), (len(online), blocks, len(runs[0]), len(runs[0])), strict=True
    )]  # fmt: skip
    table = pd.DataFrame(rows, columns=["interval", "ratio", "ci95_low", "ci95_high", "units"])
    return table.assign(effective_sample_size=[effective, *[float("nan")] * 3])


def _over(times: pd.DataFrame, column: str) -> float:
    return float(times.loc["online", column] / times.loc["batch", column])


def _naive_ratio(top: Sequence[float], bottom: Sequence[float]) -> Interval:
    """Ratio of means with the interval of independent values (the delta method)."""
    a, b = np.asarray(top), np.asarray(bottom)
    ratio = float(a.mean() / b.mean())
    relative = float(np.sqrt(a.var(ddof=1) / len(a) / a.mean() ** 2 + b.var(ddof=1) / len(b) / b.mean() ** 2))
    return Interval(ratio, ratio * (1 - 1.96 * relative), ratio * (1 + 1.96 * relative), 0.95, len(a))


def _mean_ratio(runs: Sequence[Sequence[Sequence[float]]]) -> Interval:
    from workbook.analysis.intervals import ratio_interval

    top, bottom = ([float(np.mean(run)) for run in side] for side in runs)
    return ratio_interval(top, bottom)


def _bounds(interval: Interval) -> str:
    return f" (95% interval {interval.low:.2f} to {interval.high:.2f})" if interval.known else ""
