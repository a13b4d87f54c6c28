"""Numbers small enough to check in the head: times are given in ms and turned into ns once."""

import json
import math

import pandas as pd
import pytest

from workbook.analysis.split import PARTS, split_latency
from workbook.analysis.summaries import (
    as_json_values,
    check_littles_law,
    describe_latency,
    latency_percentile,
    latency_table,
    least_requests,
    summarise_batches,
    summarise_requests,
)
from workbook.errors import LoadError
from workbook.measuring.records import BATCH_COLUMNS, REQUEST_COLUMNS

MS = 1_000_000


def requests(*latencies_ms, run=0, concurrency=1, arm="online", warmup=0, **columns):
    """One client, one request after the other: each starts when the one before it ends."""
    rows, now_ms = [], 0
    for number, latency_ms in enumerate(latencies_ms):
        times = {
            "intended_ns": now_ms * MS,
            "sent_ns": (now_ms + 1) * MS,
            "received_ns": (now_ms + latency_ms - 2) * MS,
            "decoded_ns": (now_ms + latency_ms) * MS,
        }
        now_ms += latency_ms
        rows.append(
            {
                "arm": arm, "run": run, "concurrency": concurrency, "client": 0, "request": number,
                "window": -1 if number < warmup else 0, "first_row": 32 * number, **times, "rows": 32,
                "real_tokens": 300, "padded_tokens": 400,
                "bytes_in": 1_000_000, "bytes_out": 500_000, "error": "", **columns,
            }
        )  # fmt: skip
    return pd.DataFrame(rows).astype(dict(REQUEST_COLUMNS))


def batches(*starts_ms, run=0):
    """Batches of 32 that take 10 + 80 + 5 ms each."""
    rows = [
        {
            "arm": "batch", "run": run, "batch": number, "first_row": 32 * number, "start_ns": start * MS,
            "tokenised_ns": (start + 10) * MS, "inferred_ns": (start + 90) * MS, "pooled_ns": (start + 95) * MS,
            "rows": 32, "real_tokens": 300, "padded_tokens": 400, "error": "",
        }
        for number, start in enumerate(starts_ms)
    ]  # fmt: skip
    return pd.DataFrame(rows).astype(dict(BATCH_COLUMNS))


def test_two_requests_of_100_and_300_ms():
    (summary,) = summarise_requests(requests(100, 300)).to_dict("records")
    assert summary["requests"] == 2 and summary["rows"] == 64 and summary["errors"] == 0
    assert summary["duration_s"] == pytest.approx(0.4)
    assert summary["throughput_rows_per_s"] == pytest.approx(160)
    assert summary["requests_per_s"] == pytest.approx(5)
    assert summary["latency_mean_ms"] == pytest.approx(200)
    assert summary["latency_p50_ms"] == pytest.approx(200)
    assert summary["real_tokens_per_s"] == pytest.approx(1500)
    assert summary["padded_tokens_per_s"] == pytest.approx(2000)
    assert summary["padding_percent"] == pytest.approx(25)
    assert summary["mb_in_per_s"] == pytest.approx(5) and summary["mb_out_per_s"] == pytest.approx(2.5)


def test_the_clock_starts_when_the_warm_up_ends():
    (summary,) = summarise_requests(requests(1000, 100, 100, warmup=1)).to_dict("records")
    assert summary["duration_s"] == pytest.approx(0.2)
    assert summary["requests"] == 2
    assert summary["latency_mean_ms"] == pytest.approx(100)


def test_failed_requests_are_counted_but_measure_nothing():
    records = requests(100, 100, 50)
    records.loc[2, "error"] = "timeout"
    (summary,) = summarise_requests(records).to_dict("records")
    assert (summary["requests"], summary["errors"]) == (2, 1)
    assert summary["duration_s"] == pytest.approx(0.2)


def test_all_failed_gives_no_number_and_no_crash():
    (summary,) = as_json_values(summarise_requests(requests(100, 100, error="server died")))
    assert summary["errors"] == 2 and summary["requests"] == 0
    assert summary["throughput_rows_per_s"] is None and summary["latency_mean_ms"] is None


def test_no_records_give_an_empty_summary():
    assert summarise_requests(requests(100).iloc[:0]).empty


def test_pooled_percentiles_are_those_of_all_requests_together():
    records = pd.concat([requests(100, 100, 100, run=0), requests(200, run=1)])
    (pooled,) = summarise_requests(records, by_run=False).to_dict("records")
    assert pooled["duration_s"] == pytest.approx(0.5)
    assert pooled["latency_mean_ms"] == pytest.approx(125)
    assert pooled["latency_p50_ms"] == pytest.approx(100)
    assert len(summarise_requests(records)) == 2


@pytest.mark.parametrize(("percentile", "least"), [(50, 2), (90, 10), (95, 20), (99, 100)])
def test_a_percentile_needs_one_value_beyond_it(percentile, least):
    assert least_requests(percentile) == least
    assert math.isnan(latency_percentile(range(least - 1), percentile))
    assert not math.isnan(latency_percentile(range(least), percentile))


def test_a_missing_percentile_says_why():
    (summary,) = as_json_values(summarise_requests(requests(*[100] * 20)))
    assert summary["latency_p95_ms"] == pytest.approx(100)
    assert summary["latency_p99_ms"] is None
    assert summary["note"] == "p99 needs 100 requests; there are 20"


def test_percentiles_of_1_to_101_are_the_numbers_themselves():
    (summary,) = summarise_requests(requests(*range(2, 103))).to_dict("records")
    assert [summary[f"latency_p{p}_ms"] for p in (50, 90, 95, 99)] == pytest.approx([52, 92, 97, 101])


def test_littles_law_holds_for_four_clients_and_not_for_lost_time():
    four = pd.concat([requests(100, 100, concurrency=4)] * 4, ignore_index=True)
    (law,) = check_littles_law(summarise_requests(four)).to_dict("records")
    assert law["implied_in_flight"] == pytest.approx(4) and law["holds"]
    lost = requests(100, 100)
    lost.loc[1, ["intended_ns", "sent_ns", "received_ns", "decoded_ns"]] += 100 * MS
    (law,) = check_littles_law(summarise_requests(lost)).to_dict("records")
    assert law["implied_in_flight"] == pytest.approx(2 / 3) and not law["holds"]


def test_batches_have_stages_and_the_time_between_them():
    (summary,) = summarise_batches(batches(0, 105)).to_dict("records")
    assert summary["duration_s"] == pytest.approx(0.2)
    assert summary["throughput_rows_per_s"] == pytest.approx(320)
    assert [summary[f"{s}_ms"] for s in ("tokenise", "inference", "pooling")] == pytest.approx([10, 80, 5])
    assert summary["latency_mean_ms"] == pytest.approx(95)
    assert summary["unaccounted_percent"] == pytest.approx(5)  # 10 of 200 ms


def test_pooled_batches_add_their_durations():
    records = pd.concat([batches(0, 105, run=0), batches(1000, 1105, run=1)])
    (summary,) = summarise_batches(records, by_run=False).to_dict("records")
    assert summary["duration_s"] == pytest.approx(0.4)
    assert summary["batches"] == 4


def test_latency_table_holds_both_kinds_of_records():
    records = pd.concat([requests(50, 100, warmup=1), requests(100, concurrency=4)])
    table = latency_table(records, batches(0, 105))
    assert list(table["label"].unique()) == ["online, 1 in flight", "online, 4 in flight", "batch"]
    assert list(table["latency_ms"]) == pytest.approx([100, 100, 95, 95])
    assert table["ms_per_row"].iloc[0] == pytest.approx(3.125)
    assert list(table["start_s"]) == pytest.approx([0, 0, 0, 0.105])
    described = describe_latency(table)
    assert described.loc["count", "batch"] == 2 and described.loc["max", "batch"] == pytest.approx(95)


def test_json_values_are_plain():
    json.dumps(as_json_values(summarise_requests(requests(100, 300))), allow_nan=False)


class ServerTimes:
    success_count = 2
    queue_ms = 5.0
    compute_input_ms = 1.0
    compute_infer_ms = 80.0
    compute_output_ms = 2.0


def test_the_parts_of_a_latency_sum_to_it():
    split = split_latency(requests(100, 100), ServerTimes())
    assert split.mean_ms == pytest.approx(100)
    assert list(split.parts_ms) == list(PARTS)
    assert list(split.parts_ms.values()) == pytest.approx([1, 9, 5, 1, 80, 2, 2])
    assert sum(split.parts_ms.values()) == pytest.approx(split.mean_ms)
    assert split.server_ms == pytest.approx(88) and split.note == ""


def test_a_negative_rest_is_kept_and_named():
    split = split_latency(requests(50, 50), ServerTimes())
    assert split.parts_ms["network_ms"] == pytest.approx(-41)
    assert sum(split.parts_ms.values()) == pytest.approx(50)
    assert "88.00 ms, more than the 47.00 ms" in split.note


def test_nothing_answered_cannot_be_split():
    with pytest.raises(LoadError, match="no request was answered"):
        split_latency(requests(50, error="refused"), ServerTimes())
