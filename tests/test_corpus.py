import csv
import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from workbook.artifacts import PROJECT_DIR
from workbook.errors import CorpusError, SettingError
from workbook.measuring.corpus.reading import MAX_CHARACTERS, Corpus, clean_text, load_corpus

HEADER = b"id,text\n"


def read(folder: Path, content: bytes, name: str = "tweets.csv", **options: object) -> Corpus:
    path = folder / name
    path.write_bytes(content)
    return load_corpus(str(path), **options)  # type: ignore[arg-type]


def report_of(corpus: Corpus) -> list[tuple[str, str, int, list[int]]]:
    return [tuple(row) for row in corpus.report.itertuples(index=False)]


# What the file holds after the header "id,text", the texts that come out, and the report.
CSV_ROWS = {
    "sound": (b"1,fire\n2,rain\n", ["fire", "rain"], []),
    "no line end at the end": (b"1,fire\n2,rain", ["fire", "rain"], []),
    "CRLF": (b"1,fire\r\n2,rain\r\n", ["fire", "rain"], []),
    "line break in quotes": (b'1,"fire\nnear"\n2,rain\n', ["fire\nnear", "rain"], []),
    "comma and doubled quote": (b'1,"fire, ""big"""\n', ['fire, "big"'], []),
    "empty": (b"1,\n2,rain\n", ["rain"], [("empty text", "dropped", 1, [0])]),
    "only spaces": (b"1,fire\n2, \t \n", ["fire"], [("empty text", "dropped", 1, [1])]),
    "no-break space": ("1,fire\n2,\u00a0\u3000\n".encode(), ["fire"], [("empty text", "dropped", 1, [1])]),
    "NaN": (b"1,NaN\n2,nan\n3,fire\n", ["fire"], [("missing text", "dropped", 2, [0, 1])]),
    "NUL": (b"1,fi\x00re\n2,rain\n", ["fire", "rain"], [("NUL characters removed", "cleaned", 1, [0])]),
    "only NUL": (b"1,\x00\n2,rain\n", ["rain"], [("empty text", "dropped", 1, [0])]),
    "not UTF-8": (b"1,caf\xe9 fire\n", ["caf\ufffd fire"], [("bytes that are not UTF-8 replaced", "cleaned", 1, [0])]),
    "lone surrogate": (
        b"1,a\xed\xa0\xbdb\n",
        ["a\ufffdb"],
        [("bytes that are not UTF-8 replaced", "cleaned", 1, [0])],
    ),
    "100,000 characters": (
        b"1," + b"x" * 100_000 + b"\n",
        ["x" * MAX_CHARACTERS],
        [("cut to 20000 characters", "cleaned", 1, [0])],
    ),
    "1,000,000 characters": (
        b"1," + b"x" * 1_000_000 + b"\n",
        ["x" * MAX_CHARACTERS],
        [("cut to 20000 characters", "cleaned", 1, [0])],
    ),
    "too few fields": (b"fire\n2,rain\n", ["rain"], [("wrong number of fields", "dropped", 1, [0])]),
    "too many fields": (b"1,fire,now\n2,rain\n", ["rain"], [("wrong number of fields", "dropped", 1, [0])]),
    "empty line": (b"1,fire\n\n2,rain\n", ["fire", "rain"], [("empty line", "dropped", 1, [1])]),
    "two repairs": (
        b"1,\x00a\xff\n",
        ["a\ufffd"],
        [("NUL characters removed", "cleaned", 1, [0]), ("bytes that are not UTF-8 replaced", "cleaned", 1, [0])],
    ),
    "line separator U+2028": ("1,fire\u2028rain\n".encode(), ["fire\u2028rain"], []),
}


@pytest.mark.parametrize("case", CSV_ROWS)
@pytest.mark.parametrize("packed", [False, True], ids=["csv", "csv.gz"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
def test_csv_rows_are_kept_cleaned_or_counted(tmp_path: Path, case: str, packed: bool, mark: bytes) -> None:
    content, texts, report = CSV_ROWS[case]
    content = mark + HEADER + content
    corpus = read(tmp_path, gzip.compress(content) if packed else content, "tweets.csv.gz" if packed else "tweets.csv")
    assert corpus.texts == texts
    assert report_of(corpus) == report


JSON_ROWS = {
    "sound": (b'{"text": "fire"}\n{"text": "rain", "id": 2}', ["fire", "rain"], []),
    "CRLF and U+2028": ('{"text": "fire\u2028"}\r\n'.encode(), ["fire\u2028"], []),
    "null": (b'{"text": null}\n{"text": "rain"}', ["rain"], [("missing text", "dropped", 1, [0])]),
    "NaN": (b'{"text": NaN}\n{"text": "rain"}', ["rain"], [("missing text", "dropped", 1, [0])]),
    "no such key in one": (b'{"id": 1}\n{"text": "rain"}', ["rain"], [("missing text", "dropped", 1, [0])]),
    "number": (b'{"text": 3}\n{"text": "rain"}', ["rain"], [("not text but int", "dropped", 1, [0])]),
    "list": (b'{"text": ["a"]}\n{"text": "rain"}', ["rain"], [("not text but list", "dropped", 1, [0])]),
    "true": (b'{"text": true}\n{"text": "rain"}', ["rain"], [("not text but bool", "dropped", 1, [0])]),
    "broken": (b'{"text": "fi\n{"text": "rain"}', ["rain"], [("not JSON", "dropped", 1, [0])]),
    "deep": (b"[" * 100_000 + b'\n{"text": "rain"}', ["rain"], [("not JSON", "dropped", 1, [0])]),
    "array": (b'["fire"]\n{"text": "rain"}', ["rain"], [("not a JSON object", "dropped", 1, [0])]),
    "empty line": (b'\n{"text": "rain"}\n', ["rain"], [("empty line", "dropped", 1, [0])]),
    "escaped NUL": (rb'{"text": "a\u0000b"}', ["ab"], [("NUL characters removed", "cleaned", 1, [0])]),
    "raw NUL": (b'{"text": "a\x00b"}', ["ab"], [("NUL characters removed", "cleaned", 1, [0])]),
    "escaped surrogate": (rb'{"text": "a\ud83db"}', ["a\ufffdb"], [("lone surrogates replaced", "cleaned", 1, [0])]),
    "surrogate pair": (rb'{"text": "\ud83d\ude00"}', ["\U0001f600"], []),
}


@pytest.mark.parametrize("case", JSON_ROWS)
@pytest.mark.parametrize("packed", [False, True], ids=["jsonl", "jsonl.gz"])
def test_json_rows_are_kept_cleaned_or_counted(tmp_path: Path, case: str, packed: bool) -> None:
    content, texts, report = JSON_ROWS[case]
    corpus = read(tmp_path, gzip.compress(content) if packed else content, "t.jsonl.gz" if packed else "t.jsonl")
    assert corpus.texts == texts
    assert report_of(corpus) == report


def test_parquet_rows_are_kept_cleaned_or_counted(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    raw = pa.array([b"fire", None, b"", b"a\x00b", b"caf\xe9", b"x" * 100_000], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())  # Arrow does not check that text is UTF-8
    pq.write_table(pa.table({"id": range(6), "text": texts}), tmp_path / "t.parquet")
    corpus = load_corpus(str(tmp_path / "t.parquet"))
    assert corpus.texts == ["fire", "ab", "caf\ufffd", "x" * MAX_CHARACTERS]
    assert corpus.frame["row"].tolist() == corpus.frame["id"].tolist() == [0, 3, 4, 5]
    assert report_of(corpus) == [
        ("missing text", "dropped", 1, [1]),
        ("empty text", "dropped", 1, [2]),
        ("NUL characters removed", "cleaned", 1, [3]),
        ("bytes that are not UTF-8 replaced", "cleaned", 1, [4]),
        ("cut to 20000 characters", "cleaned", 1, [5]),
    ]


def test_parquet_categories_are_text(tmp_path: Path) -> None:
    pd.DataFrame({"text": pd.Categorical(["a", "b", "a"])}).to_parquet(tmp_path / "t.parquet")
    assert load_corpus(str(tmp_path / "t.parquet")).texts == ["a", "b", "a"]


def test_parquet_column_of_numbers_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"text": [1, 2]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(CorpusError, match=r"no row with text in 'text'. 2 rows dropped \(not text but int\)"):
        load_corpus(str(tmp_path / "t.parquet"))


PARQUET_START = b"PAR1" + b"\0" * 40
REFUSED_FILES = {
    "empty file": ("t.csv", b"", "is an empty file"),
    "empty gzip": ("t.csv.gz", gzip.compress(b""), "no row with text"),
    "header only": ("t.csv", b"id,text\n", "no row with text in 'text'. It has no rows"),
    "only a byte order mark": ("t.csv", b"\xef\xbb\xbf", "no row with text"),
    "only empty texts": ("t.csv", b"id,text\n1,\n2,\n", r"2 rows dropped \(empty text\)"),
    "no text column": (
        "t.csv",
        b"id,Texts,date\n1,a,b\n",
        r"no column 'text'. It has 'id', 'Texts', 'date'. .* is 'Texts'",
    ),
    "no text key": ("t.jsonl", b'{"tweet": "a"}\n{"body": 1}', "no column 'text'. It has 'tweet', 'body'"),
    "duplicate header": ("t.csv", b"text,id,text\na,1,b\n", "'text' more than once"),
    "open quote": ("t.csv", b'id,text\n1,a\n2,"fire\n3,rain\n', "from line 3 on"),
    "quote inside quotes": ("t.csv", b'id,text\n1,"a "big" fire"\n', "from line 2 on.* written twice"),
    "UTF-16": ("t.csv", "id,text\n1,a\n".encode("utf-16"), "UTF-16"),
    "no JSON at all": ("t.jsonl", b"id,text\n1,a\n", r"2 rows dropped \(not JSON\)"),
    "Parquet named csv": ("t.csv", PARQUET_START, "holds Parquet data"),
    "gzip named csv": ("t.csv", gzip.compress(b"id,text\n"), "holds gzip data"),
    "zip named csv": ("t.csv", b"PK\x03\x04abc", "holds a zip archive"),
    "csv named gz": ("t.csv.gz", b"id,text\n1,a\n", "not whole gzip data"),
    "half a gzip": ("t.csv.gz", gzip.compress(os.urandom(5_000).hex().encode())[:2_000], "not whole gzip data"),
    "csv named Parquet": ("t.parquet", b"id,text\n1,a\n", "not a Parquet file"),
    "half a Parquet": ("t.parquet", PARQUET_START, "not a Parquet file"),
    "unknown extension": ("t.xlsx", b"abc", r"ends in .xlsx; a corpus file ends in one of .csv, .csv.gz, .jsonl"),
    "no extension": ("tweets", b"id,text\n", "no extension"),
}


@pytest.mark.parametrize("case", REFUSED_FILES)
def test_a_file_that_cannot_be_read_is_refused_in_one_sentence(tmp_path: Path, case: str) -> None:
    name, content, message = REFUSED_FILES[case]
    with pytest.raises(CorpusError, match=message):
        read(tmp_path, content, name)


def test_places_that_are_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    for corpus, message in {
        str(tmp_path / "folder.csv"): "is a folder",
        str(tmp_path / "pipe.csv"): "not a regular file",
        str(tmp_path / "absent.csv"): "is not there",
        "smaple": "is not there.*sample",
        "": "has no name",
        ".": "is a folder",
        "~nobody-here/x.csv": "cannot be looked up",
        "a\0b.csv": "is not there|cannot be looked up",
        "x" * 5_000: "cannot be looked up|is not there",
    }.items():
        with pytest.raises(CorpusError, match=message):
            load_corpus(corpus)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(HEADER + b"1,a\n")
    path.chmod(0)
    with pytest.raises(CorpusError, match="cannot be read: Permission denied"):
        load_corpus(str(path))


def test_a_refused_open_is_a_corpus_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "t.csv").write_bytes(HEADER + b"1,a\n")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CorpusError, match="cannot be read: Permission denied"):
        load_corpus(str(tmp_path / "t.csv"))


@pytest.mark.parametrize("rows", [0, -1])
def test_fewer_than_one_row_is_refused_before_reading(rows: int) -> None:
    with pytest.raises(SettingError, match=f"rows is {rows}"):
        load_corpus("nowhere.csv", rows=rows)


def test_rows_are_the_first_usable_ones(tmp_path: Path) -> None:
    content = HEADER + b"1,a\n2,\n3,b\n4,\n5,c\n"
    corpus = read(tmp_path, content, rows=2)
    assert corpus.texts == ["a", "b"]
    assert corpus.frame["row"].tolist() == [0, 2]
    assert report_of(corpus) == [("empty text", "dropped", 1, [1])]
    assert read(tmp_path, content, rows=3).texts == ["a", "b", "c"]
    with pytest.raises(CorpusError, match=r"rows is 4, but .* has 3 usable rows \(2 rows dropped \(empty text\)\)"):
        read(tmp_path, content, rows=4)


def test_side_columns_keep_their_kinds(tmp_path: Path) -> None:
    corpus = read(tmp_path, b"id,keyword,location,text,target,more\n7,fire,,a,1,x\n8,,Oslo,b,,y\n")
    assert list(corpus.frame.columns) == ["row", "text", "id", "keyword", "location", "target"]
    assert corpus.frame["row"].dtype == "int64"
    assert corpus.frame["id"].tolist() == [7, 8]
    assert corpus.frame["keyword"].tolist() == ["fire", None]
    assert corpus.frame["target"].isna().tolist() == [False, True]


def test_text_column_can_be_any(tmp_path: Path) -> None:
    assert read(tmp_path, b"text,keyword\na,b\n", text_column="keyword").texts == ["b"]


def test_the_sample_has_one_text_column() -> None:
    with pytest.raises(CorpusError, match="'text', not 'body'"):
        load_corpus("sample", text_column="body")


def test_relative_paths_from_here_first_then_from_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "data/samples/tweets_32.csv"
    assert len(load_corpus(name).texts) == 32
    (tmp_path / "data/samples").mkdir(parents=True)
    (tmp_path / name).write_bytes(HEADER + b"1,mine\n")
    assert load_corpus(name).texts == ["mine"]


def test_equal_text_has_an_equal_fingerprint(tmp_path: Path) -> None:
    by_csv = read(tmp_path, HEADER + b"1,a\n2,b\n")
    by_json = read(tmp_path, b'{"text": "a"}\n{"text": "b"}\n', "t.jsonl")
    assert by_csv.fingerprint == by_json.fingerprint
    assert by_csv.fingerprint != read(tmp_path, HEADER + b"1,ab\n").fingerprint
    assert by_csv.fingerprint != read(tmp_path, HEADER + b"1,b\n2,a\n").fingerprint


def test_describe_counts_what_can_be_counted_in_the_head(tmp_path: Path) -> None:
    corpus = read(tmp_path, "text\nab\n#a @b\nhttp://t.co/é\nab\n".encode())
    measures = corpus.describe().set_index("measure")["value"].to_dict()
    assert measures["rows"] == 4
    assert measures["characters_mean"] == (2 + 5 + 13 + 2) / 4
    assert measures["characters_max"] == 13
    assert measures["link_share"] == measures["non_ascii_share"] == 0.25
    assert measures["hashtag_share"] == measures["handle_share"] == 0.25
    assert measures["repeated_rows"] == 1


def test_reading_leaves_the_csv_module_as_it_was(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    read(tmp_path, HEADER + b"1,a\n")
    assert csv.field_size_limit() == before


def test_ten_thousand_bad_rows_are_quick(tmp_path: Path) -> None:
    start = time.process_time()  # a busy machine may make anything wait
    corpus = read(tmp_path, HEADER + b"1,\x00\n" * 10_000 + b"2,rain\n")
    assert report_of(corpus) == [("empty text", "dropped", 10_000, [0, 1, 2, 3, 4])]
    assert time.process_time() - start < 10


def as_csv(texts: list[str]) -> bytes:
    """Quoted by hand: the csv module of Python 3.10 writes no NUL."""
    lines = ["id,text", *('{},"{}"'.format(row, text.replace('"', '""')) for row, text in enumerate(texts))]
    return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "surrogatepass")


def as_jsonl(texts: list[str]) -> bytes:
    return "\n".join(json.dumps({"text": text}) for text in texts).encode()


any_text = st.text(st.characters(codec=None), max_size=40) | st.sampled_from(
    ["", " ", "nan", "\ud800", "\0", '"', "a\r\nb"]
)


@pytest.mark.parametrize(("write", "name"), [(as_csv, "t.csv"), (as_jsonl, "t.jsonl")], ids=["csv", "jsonl"])
@given(texts=st.lists(any_text, max_size=8))
@example(texts=["\ufeff", "a\ud800\udc00b", "x" * 30_000])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_text_comes_back_clean_or_is_in_the_report(
    write: Callable[[list[str]], bytes], name: str, texts: list[str]
) -> None:
    texts = [*texts, "last"]
    with tempfile.TemporaryDirectory() as folder:
        corpus = read(Path(folder), write(texts), name)
    kept = dict(zip(corpus.frame["row"].tolist(), corpus.texts, strict=True))
    for row, text in enumerate(texts):
        if row in kept:  # JSON reads two escaped halves that belong together as the character they make
            assert kept[row] in (clean_text(text)[0], clean_text(json.loads(json.dumps(text)))[0])
    dropped = corpus.report.loc[corpus.report["action"] == "dropped", "rows"].sum()
    assert len(kept) + dropped == len(texts)
    for text in corpus.texts:
        text.encode("utf-8")  # no half of a pair is left
        assert text.strip() and "\0" not in text and len(text) <= MAX_CHARACTERS
    must_stay = [text for text in texts if clean_text(text)[0].strip() and text not in ("nan", "NaN")]
    assert len(kept) == len(must_stay)


class TestHub:
    def test_no_hub_is_said_quickly_and_names_the_other_ways(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from huggingface_hub import HfApi

        def unreachable(*_: object, **__: object) -> None:
            raise ConnectionError("no network")

        import datasets

        monkeypatch.setattr(HfApi, "dataset_info", unreachable)
        before = datasets.config.HF_HUB_OFFLINE
        start = time.perf_counter()
        with pytest.raises(CorpusError, match=r"hub is out of reach.*\.csv.*sample"):
            load_corpus("hub:nobody/never_made")
        assert time.perf_counter() - start < 60
        assert before == datasets.config.HF_HUB_OFFLINE

    def test_splits_follow_each_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import datasets
        from huggingface_hub import HfApi

        splits = datasets.DatasetDict(
            train=datasets.Dataset.from_dict({"id": [1, 2], "text": ["a", None], "target": [1, 0]}),
            test=datasets.Dataset.from_dict({"id": [3], "text": ["c"]}),
        )
        monkeypatch.setattr(HfApi, "dataset_info", lambda *_, **__: None)
        monkeypatch.setattr(datasets, "load_dataset", lambda name: splits)
        corpus = load_corpus("hub:some/tweets")
        assert corpus.texts == ["a", "c"]
        assert corpus.frame["row"].tolist() == [0, 2]
        assert corpus.frame["target"].isna().tolist() == [False, True]
        assert report_of(corpus) == [("missing text", "dropped", 1, [1])]
        with pytest.raises(CorpusError, match="no column 'tweet'"):
            load_corpus("hub:some/tweets", text_column="tweet")

    def test_unknown_dataset(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import RepositoryNotFoundError

        def missing(*_: object, **__: object) -> None:
            raise RepositoryNotFoundError.__new__(RepositoryNotFoundError)

        monkeypatch.setattr(HfApi, "dataset_info", missing)
        with pytest.raises(CorpusError, match="not on the hub"):
            load_corpus("hub:some/tweets")

    def test_a_folder_of_the_same_name_is_not_taken_for_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "some/tweets").mkdir(parents=True)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(CorpusError, match="a folder of that name"):
            load_corpus("hub:some/tweets")

    @pytest.mark.parametrize("name", ["", "a", "a/b/c", "../x", "a/b c"])
    def test_malformed_names(self, name: str) -> None:
        with pytest.raises(CorpusError, match="write hub:ORG/NAME"):
            load_corpus(f"hub:{name}")


def test_the_project_keeps_a_small_sample() -> None:
    corpus = load_corpus(str(PROJECT_DIR / "data/samples/tweets_32.csv"))
    assert len(corpus.texts) == 32
    assert corpus.report.empty


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_another_separator_is_named(tmp_path: Path, separator: str) -> None:
    with pytest.raises(CorpusError, match="not by commas"):
        read(tmp_path, f"id{separator}text\n1{separator}hello, you\n".encode(), "mine.csv")


def test_a_date_that_python_cannot_hold_beside_the_text_does_no_harm(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    far = pa.array([2**62], pa.timestamp("ms"))
    pq.write_table(pa.table({"text": ["hello"], "location": far}), tmp_path / "mine.parquet")
    assert load_corpus(str(tmp_path / "mine.parquet")).texts == ["hello"]
