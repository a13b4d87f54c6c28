from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fake_triton import FakeTriton
from workbook.errors import LoadError, SettingError
from workbook.measuring.corpus.batches import Batch
from workbook.measuring.online.agreement import agreement_sentence, agreement_table, compare_with_perf_analyzer
from workbook.measuring.online.load import Load
from workbook.measuring.online.perf_analyzer import (
    find_perf_analyzer,
    perf_analyzer_command,
    perf_analyzer_version,
    read_csv,
    run_perf_analyzer,
    write_input_data,
)
from workbook.measuring.records import REQUEST_COLUMNS, read_records

# written by perf_analyzer 2.60 against the null model: batch 8, concurrency 2, --percentile=50
WRITTEN = """\
Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,\
Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency,\
request/response,response wait
2,55120.6,1,152,47,6,31,42,0,252,334,372,647,1,278
"""


def batch(number: int, rows: int = 2) -> Batch:
    ids = np.arange(rows * 3, dtype=np.int64).reshape(rows, 3) + 100 * number
    return Batch(ids, np.ones_like(ids), np.arange(rows), ("a",) * rows)


def program(folder: Path, script: str) -> Path:
    """A stand-in: a shell script that is given perf_analyzer's arguments."""
    path = folder / "perf_analyzer"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_it_is_found_on_path_by_setting_or_not_at_all(tmp_path, monkeypatch):
    there = program(tmp_path, "echo 'Perf Analyzer Version 2.60.0 (commit abc)'")
    monkeypatch.setenv("PATH", os.defpath)
    assert find_perf_analyzer() is None
    assert find_perf_analyzer(str(there)) == there
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    assert find_perf_analyzer() == there
    assert find_perf_analyzer("none") is None
    with pytest.raises(SettingError, match=r"/nowhere/pa.*which is no program"):
        find_perf_analyzer("/nowhere/pa")
    assert perf_analyzer_version(there) == "2.60.0 (commit abc)"


def test_the_input_file_holds_each_row_in_order(tmp_path):
    assert write_input_data([batch(1), batch(2)], tmp_path / "in.json") == 2
    data = json.loads((tmp_path / "in.json").read_text())["data"]
    assert [step["input_ids"]["content"] for step in data] == [
        [100, 101, 102],
        [103, 104, 105],
        [200, 201, 202],
        [203, 204, 205],
    ]
    assert {tuple(step["attention_mask"]["shape"]) for step in data} == {(3,)}
    with pytest.raises(LoadError, match=r"these have \[1, 2\] rows"):
        write_input_data([batch(1), batch(2, rows=1)], tmp_path / "in.json")


def test_the_command_asks_for_what_ours_measures():
    load = Load("e5", concurrency=4, transport="http", window_s=2.5, stability_percent=12.5, max_windows=7)
    command = perf_analyzer_command(Path("/pa"), load, "h:1", 8, Path("in.json"), Path("out.csv"))
    assert " ".join(command) == (
        "/pa -m e5 -u h:1 -i http -b 8 --input-data in.json --concurrency-range 4:4 --measurement-interval 2500 "
        "--stability-percentage 12.5 --max-trials 7 -f out.csv --verbose-csv"
    )
    assert "--percentile 95" in " ".join(
        perf_analyzer_command(Path("/pa"), load, "h:1", 8, Path("in.json"), Path("out.csv"), percentile=95)
    )


def test_microseconds_become_milliseconds(tmp_path):
    (tmp_path / "out.csv").write_text(WRITTEN)
    assert read_csv(tmp_path / "out.csv").iloc[0].to_dict() == {
        "concurrency": 2,
        "throughput_rows_per_s": 55120.6,
        "client_send_ms": 0.001,
        "network_ms": 0.152,
        "server_queue_ms": 0.047,
        "server_compute_input_ms": 0.006,
        "server_compute_infer_ms": 0.031,
        "server_compute_output_ms": 0.042,
        "client_receive_ms": 0.0,
        "latency_p50_ms": 0.252,
        "latency_p90_ms": 0.334,
        "latency_p95_ms": 0.372,
        "latency_p99_ms": 0.647,
    }
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(LoadError, match="no result of perf_analyzer"):
        read_csv(tmp_path / "other.csv")


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "echo 'error: failed to get model\nmetadata: no' >&2; exit 99",
            r"exit code 99\): failed to get model metadata: no\.$",
        ),
        ("echo 'Failed to obtain stable measurement.' >&2; exit 2", "windows did not agree: Failed to obtain"),
        ("exit 0", "wrote no result"),
        ("kill -9 $$", "exit code -9"),
    ],
)
def test_its_errors_are_told_in_a_sentence(tmp_path, script, says):
    with FakeTriton() as fake, pytest.raises(LoadError, match=says):
        run_perf_analyzer(fake, Load("fake"), [batch(1)], program(tmp_path, script))


def test_a_program_that_cannot_start_is_said(tmp_path):
    with pytest.raises(LoadError, match="cannot be started"):
        perf_analyzer_version(tmp_path)


def test_both_tools_take_turns_and_their_ratio_is_of_neighbours(tmp_path):
    script = f"""
while [ "$1" != -f ]; do shift; done
cat > "$2" <<EOF
{WRITTEN}EOF
echo turn >> {tmp_path}/turns"""
    load = Load("fake", transport="http", warmup_s=0, window_s=0.1, stability_percent=1000.0)
    with FakeTriton(service_s=0.005) as fake:
        measured = compare_with_perf_analyzer(
            fake,
            load,
            [batch(1)],
            program(tmp_path, script),
            tmp_path / "r.csv",
            concurrencies=(1,),
            repeats=2,
            progress=False,
        )
    assert measured["tool"].tolist() == ["workbook", "perf_analyzer", "perf_analyzer", "workbook"]
    assert measured["repeat"].tolist() == [0, 0, 1, 1]
    assert measured["latency_p50_ms"][1] == 0.252
    ours = read_records(tmp_path / "r.csv", REQUEST_COLUMNS).query("arm != 'warm-up' and run == 0 and window >= 0")
    ours = ours[ours["window"] > ours["window"].max() - 3]
    assert measured["latency_p50_ms"][0] == pytest.approx(((ours["decoded_ns"] - ours["sent_ns"]) / 1e6).median())
    assert measured["latency_p50_ms"][0] >= 5
    measured["throughput_rows_per_s"] = [110.0, 100.0, 50.0, 52.0]  # the machine halved its speed; the tools agree
    table = agreement_table(measured).iloc[0]
    assert table["throughput_ratio"] == pytest.approx(1.07)
    assert (table["throughput_ratio_min"], table["throughput_ratio_max"]) == pytest.approx((1.04, 1.1))
    assert table["workbook_throughput_rows_per_s"] == 81
    assert table["pairs"] == 2
    assert not table["agrees"]


def pairs(concurrency: int, *ours: float) -> pd.DataFrame:
    """Measurements beside a perf_analyzer that shows 100 rows/s and 10 ms each time."""
    rows = [
        ("1 tweet", concurrency, tool, repeat, rate, 10.0)
        for repeat, rate in enumerate(ours)
        for tool, rate in (("workbook", rate), ("perf_analyzer", 100.0))
    ]
    columns = ["workload", "concurrency", "tool", "repeat", "throughput_rows_per_s", "latency_p50_ms"]
    return pd.DataFrame(rows, columns=columns)


def test_agreement_is_put_into_words():
    good, loose, apart = pairs(1, 96, 98, 104), pairs(2, 90, 92, 97), pairs(4, 80, 84, 82)
    assert agreement_sentence(agreement_table(good)) == (
        "This workbook's throughput over perf_analyzer's, the median of the pairs: 0.98 for 1 tweet, 1 in flight "
        "(single pairs 0.96 to 1.04). They agree within 5% in every cell."
    )
    said = agreement_sentence(agreement_table(pd.concat([good, loose, apart])))
    assert "Not within 5% for 1 tweet, 2 in flight, where single pairs scatter across that bound" in said
    assert said.endswith("NOT within 5% for 1 tweet, 4 in flight, in no pair: doubt these cells.")
