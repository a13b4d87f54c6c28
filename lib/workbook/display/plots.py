"""All figures in one place: each asks a question in its title and carries its reading in `layout.meta`.

The report uses the reading as the text alternative of the picture.
"""

from workbook.display.bar_plots import latency_split_bars, parity_plot, throughput_bars, throughput_runs
from workbook.display.latency_plots import box_plot, trace_over_time, violin_plot
from workbook.display.readings import (
    reading_of_latencies,
    reading_of_parity,
    reading_of_split,
    reading_of_throughput,
    reading_of_trace,
)

__all__ = [
    "box_plot",
    "latency_split_bars",
    "parity_plot",
    "reading_of_latencies",
    "reading_of_parity",
    "reading_of_split",
    "reading_of_throughput",
    "reading_of_trace",
    "throughput_bars",
    "throughput_runs",
    "trace_over_time",
    "violin_plot",
]
