"""Numbers and names as a reader sees them: sensible decimals, units in words."""

from __future__ import annotations

import math

from workbook.analysis.intervals import Interval

UNITS = {
    "_mb_per_s": " (MB/s)",
    "_rows_per_s": " (rows/s)",
    "_per_s": "/s",
    "_percent": " (%)",
    "_bytes": " (bytes)",
    "_ms": " (ms)",
    "_ns": " (ns)",
    "_s": " (s)",
}
"""Ends of column names and what a heading shows for them; the first that fits is taken."""

NAMES = {
    "latency_mean": "mean latency",
    "latency_p50": "median latency",
    "latency_p90": "90% within",
    "latency_p95": "95% within",
    "latency_p99": "99% within",
    "mb_in_per_s": "MB/s sent",
    "mb_out_per_s": "MB/s received",
    "concurrency": "requests in flight",
    "tokenise": "tokenisation",
    "padding": "padding",
    "ci95_low": "95% interval from",
    "ci95_high": "to",
    "min_cosine": "lowest cosine",
    "mean_cosine": "mean cosine",
    "max_abs_error": "largest difference",
    "characters_mean": "mean length, characters",
    "characters_p25": "a quarter is shorter than",
    "characters_p50": "half is shorter than",
    "characters_p75": "three quarters are shorter than",
    "characters_max": "longest, characters",
    "link_share": "share with a link",
    "hashtag_share": "share with a hashtag",
    "handle_share": "share with a handle",
    "non_ascii_share": "share with other than ASCII letters",
    "line_break_share": "share with a line break",
    "html_entity_share": "share with an HTML entity",
    "repeated_rows": "rows that repeat an earlier one",
    "perf_analyzer": "perf_analyzer",
}


def number(value: float, significant: int = 3) -> str:
    """A number with so many significant digits, never fewer than its whole part has: 1,234 and 12.3 and 0.0123."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    decimals = max(0, significant - 1 - magnitude)
    if decimals > 6:
        return f"{value:.{significant - 1}e}"
    return f"{value:,.{decimals}f}"


def milliseconds(value_ms: float) -> str:
    """A duration in the unit that reads best: 0.42 ms, 12.3 ms, 1.23 s."""
    return f"{number(value_ms / 1e3)} s" if abs(value_ms) >= 1000 else f"{number(value_ms)} ms"


def interval_words(interval: Interval, unit: str = "") -> str:
    """An interval as "2.10 to 2.35 rows/s", or the reason why there is none."""
    if not interval.known:
        return f"no interval: {interval.note}"
    return f"{number(interval.low)} to {number(interval.high)} {unit}".rstrip()


def heading(column: str) -> str:
    """A column's name in words, its unit in brackets: `throughput_rows_per_s` becomes "throughput (rows/s)"."""
    if column in NAMES:
        return NAMES[column]
    for end, unit in UNITS.items():
        if column.endswith(end):
            stem = column.removesuffix(end)
            return NAMES.get(stem, stem.replace("_", " ")) + unit
    return column.replace("_", " ")


def plural(count: int, thing: str) -> str:
    """A count with its noun: "1 request", "1,200 requests"."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def as_sentence(text: str) -> str:
    """Words of an error as a reader expects a sentence: a capital first, a full stop last."""
    whole = text[:1].upper() + text[1:]
    return whole if whole.endswith((".", "?", "!")) else f"{whole}."
