"""All figures in one place: each asks a question in its title and carries its reading in `layout.meta`.

The report uses the reading as the text alternative of the picture.
"""

from workbook.display.bar_plots import latency_split_bars, parity_plot, throughput_bars, throughput_runs
from workbook.display.latency_plots import box_plot, trace_over_time, violin_plot
from workbook.display.quality_plots import cost_plot, quality_plot
from workbook.display.readings import (
    reading_of_latencies,
    reading_of_parity,
    reading_of_split,
    reading_of_throughput,
    reading_of_trace,
)
from workbook.display.variant_plots import benchmark_plot, open_loop_plot, split_grid
from workbook.display.variant_readings import (
    reading_of_answers,
    reading_of_axes,
    reading_of_benchmark,
    reading_of_checks,
    reading_of_costs,
    reading_of_open_loop,
    reading_of_quality,
    reading_of_splits,
)

__all__ = [
    "benchmark_plot",
    "box_plot",
    "cost_plot",
    "latency_split_bars",
    "open_loop_plot",
    "parity_plot",
    "quality_plot",
    "reading_of_answers",
    "reading_of_axes",
    "reading_of_benchmark",
    "reading_of_checks",
    "reading_of_costs",
    "reading_of_latencies",
    "reading_of_open_loop",
    "reading_of_parity",
    "reading_of_quality",
    "reading_of_split",
    "reading_of_splits",
    "reading_of_throughput",
    "reading_of_trace",
    "split_grid",
    "throughput_bars",
    "throughput_runs",
    "trace_over_time",
    "violin_plot",
]
