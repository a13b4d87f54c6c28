import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbook.artifacts import PROJECT_DIR
from workbook.errors import SettingError
from workbook.measuring.corpus.reading import load_corpus
from workbook.measuring.corpus.sample import ROWS, sample_rows, write_rows
from workbook.models.e5 import Encoder, load_encoder

# Of seed 0; the same on every Python. Changes only with the generator, and then the statistics below must hold again.
SHA256_OF_SEED_0 = "0fa9e6fc95f4084b0c93209cb7b8d82c919d2770f9eccc5f9db3a0d5775aeaa3"
REAL_SHARES = {
    "link": 0.52,
    "hashtag": 0.24,
    "handle": 0.27,
    "non_ascii": 0.09,
    "line_break": 0.06,
    "html_entity": 0.05,
}
REAL_TOKEN_PERCENTILES = {1: 11, 5: 16, 25: 30, 50: 39, 75: 47, 95: 58, 99: 65}
SEEDS = (0, 1, 17)


@pytest.fixture(scope="module", params=SEEDS)
def tweets(request: pytest.FixtureRequest) -> pd.DataFrame:
    return pd.DataFrame([vars(row) for row in sample_rows(request.param)])


@pytest.fixture(scope="module")
def bundled() -> Encoder:
    return load_encoder("bundled", layers=1)


def test_same_bytes_on_every_python(tmp_path: Path) -> None:
    write_rows(sample_rows(0), tmp_path / "tweets.csv")
    assert hashlib.sha256((tmp_path / "tweets.csv").read_bytes()).hexdigest() == SHA256_OF_SEED_0


def test_another_seed_gives_other_tweets() -> None:
    assert [row.text for row in sample_rows(0, 50)] != [row.text for row in sample_rows(1, 50)]


def test_rows_columns_and_targets(tweets: pd.DataFrame) -> None:
    assert list(tweets.columns) == ["id", "keyword", "location", "text", "target"]
    assert len(tweets) == ROWS == 10_876
    assert tweets["target"].notna().sum() == 7_613
    assert tweets["target"].isna()[7_613:].all()
    assert tweets["keyword"].replace("", np.nan).nunique() == 221
    assert tweets["target"].mean() == pytest.approx(0.43, abs=0.02)


def test_characters_are_those_of_the_real_corpus(tweets: pd.DataFrame) -> None:
    characters = tweets["text"].str.len()
    assert characters.mean() == pytest.approx(101, rel=0.03)
    assert characters.quantile([0.25, 0.5, 0.75]).tolist() == pytest.approx([78, 108, 134], rel=0.03)
    assert characters.max() == 157


def test_features_are_those_of_the_real_corpus() -> None:
    measures = load_corpus("sample").describe().set_index("measure")["value"]
    found = {name: measures[f"{name}_share"] for name in REAL_SHARES}
    assert found == pytest.approx(REAL_SHARES, rel=0.03)
    assert measures["repeated_rows"] == 198


def test_tokens_are_those_of_the_real_corpus(bundled: Encoder, tweets: pd.DataFrame) -> None:
    texts = tweets["text"].tolist()
    batches = [bundled.tokenize(texts[start : start + 1024]) for start in range(0, len(texts), 1024)]
    tokens = np.concatenate([batch.attention_mask.sum(axis=1) for batch in batches])
    assert tokens.mean() == pytest.approx(38.1, rel=0.03)
    for percentile, real in REAL_TOKEN_PERCENTILES.items():
        assert np.percentile(tokens, percentile) == pytest.approx(real, rel=0.03, abs=0.5), f"percentile {percentile}"
    assert tokens.max() == pytest.approx(105, rel=0.08)


def test_target_can_be_learned_but_not_perfectly() -> None:
    """Naive Bayes over words, written out: trained on 5,000 tweets, asked about the next 2,000."""
    labelled = [(set(row.text.lower().split()), row.target) for row in sample_rows(0)[:7_000]]
    seen: dict[int, dict[str, int]] = {0: {}, 1: {}}
    sizes = [sum(1 for _, target in labelled[:5_000] if target == label) for label in (0, 1)]
    for words, target in labelled[:5_000]:
        for word in words:
            seen[int(target or 0)][word] = seen[int(target or 0)].get(word, 0) + 1

    def guess(words: set[str]) -> int:
        scores = [
            np.log(sizes[label]) + sum(np.log((seen[label].get(word, 0) + 1) / (sizes[label] + 2)) for word in words)
            for label in (0, 1)
        ]
        return int(scores[1] > scores[0])

    accuracy = np.mean([guess(words) == target for words, target in labelled[5_000:]])
    assert 0.75 < accuracy < 0.95


def test_the_committed_32_tweets_are_from_this_generator(tmp_path: Path) -> None:
    write_rows(sample_rows(0)[::340], tmp_path / "tweets.csv")
    assert (tmp_path / "tweets.csv").read_bytes() == (PROJECT_DIR / "data/samples/tweets_32.csv").read_bytes()


def test_small_samples_work_and_none_is_refused() -> None:
    assert [row.id for row in sample_rows(3, 1)] == [1]
    with pytest.raises(SettingError, match="rows is 0"):
        sample_rows(0, 0)


def test_the_sample_is_built_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORKBOOK_ARTIFACTS", str(tmp_path))
    first = load_corpus("sample", rows=5)
    files = list(tmp_path.glob("corpus/*/tweets.csv"))
    stamp = files[0].stat().st_mtime_ns
    again = load_corpus("sample", rows=5)
    assert len(files) == 1 and files[0].stat().st_mtime_ns == stamp
    assert again.fingerprint == first.fingerprint != load_corpus("sample", rows=5, seed=1).fingerprint
    assert again.source == "sample (seed 0)"
