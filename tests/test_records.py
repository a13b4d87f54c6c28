from __future__ import annotations

import threading
from pathlib import Path

import pytest

from workbook.measuring.records import BATCH_COLUMNS, REQUEST_COLUMNS, RecordWriter, read_records

COLUMNS = {"arm": "str", "run": "int64", "error": "str"}


def test_what_is_written_is_read_back(tmp_path: Path):
    path = tmp_path / "new" / "r.csv"
    with RecordWriter(path, COLUMNS) as writer:
        writer.append({"arm": "NA", "run": 2**62 + 1, "error": 'a "quoted", two-line\ntext'})
    with RecordWriter(path, COLUMNS) as writer:  # a second run goes into the same file
        writer.append({"run": 1, "error": "", "arm": "online"})
    records = read_records(path, COLUMNS)
    assert records["arm"].tolist() == ["NA", "online"]
    assert records["run"].tolist() == [2**62 + 1, 1]
    assert records["error"].tolist() == ['a "quoted", two-line\ntext', ""]


def test_a_record_with_a_column_missing_is_refused(tmp_path: Path):
    with RecordWriter(tmp_path / "r.csv", COLUMNS) as writer, pytest.raises(KeyError, match="run"):
        writer.append({"arm": "x", "error": ""})


def test_a_line_cut_off_by_a_crash_is_left_out(tmp_path: Path):
    path = tmp_path / "r.csv"
    path.write_text("arm,run,error\nonline,1,\nonl")
    assert read_records(path, COLUMNS)["run"].tolist() == [1]


def test_records_are_on_disk_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("workbook.measuring.records.FLUSH_AFTER_NS", 0)
    with RecordWriter(tmp_path / "r.csv", COLUMNS) as writer:
        writer.append({"arm": "x", "run": 7, "error": ""})
        assert read_records(tmp_path / "r.csv", COLUMNS)["run"].tolist() == [7]


def test_threads_do_not_mix_their_lines(tmp_path: Path):
    with RecordWriter(tmp_path / "r.csv", COLUMNS) as writer:

        def write(run: int) -> None:
            for _ in range(200):
                writer.append({"arm": "x" * 50, "run": run, "error": ""})

        threads = [threading.Thread(target=write, args=(run,)) for run in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    records = read_records(tmp_path / "r.csv", COLUMNS)
    assert records["run"].value_counts().to_dict() == dict.fromkeys(range(4), 200)
    assert (records["arm"] == "x" * 50).all()


def test_times_and_counts_are_whole_numbers():
    for columns in (REQUEST_COLUMNS, BATCH_COLUMNS):
        assert {kind for name, kind in columns.items() if name.endswith(("_ns", "_tokens", "rows"))} == {"int64"}
        assert {name for name, kind in columns.items() if kind == "str"} == {"arm", "error"}
