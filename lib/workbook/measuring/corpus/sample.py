"""A seeded generator of synthetic tweets that weigh on a model as real ones do.

The article's corpus (`hub:mehdiiraqui/twitter_disaster`, 10,876 rows) needs the hub. This one needs nothing: lengths,
links, hashtags, handles and token counts have the statistics of the real one within 3%; the sentences are made up. Use
it to measure speed; it says nothing about how well a model understands people.
"""

from __future__ import annotations

import bisect
import csv
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from workbook.artifacts import build_once, file_sha256
from workbook.errors import SettingError
from workbook.measuring.corpus import sample_vocabulary, sample_writer
from workbook.measuring.corpus.sample_writer import SHORTEST_BODY_CHARACTERS, Chance, Plan, TweetWriter

ROWS = 10_876
SHARE_WITH_TARGET = 7_613 / ROWS
SHARE_INCIDENT = 0.43
SHARE_REPEATED = 198 / ROWS
SHARE_WITHOUT_KEYWORD = 87 / ROWS
SHARE_WITHOUT_LOCATION = 1 / 3

# (share of the texts, characters): lengths of the real corpus, straight lines between them.
LENGTH_QUANTILES = (
    (0.0, 6),
    (0.01, 20),
    (0.05, 37),
    (0.1, 50),
    (0.25, 78),
    (0.5, 108),
    (0.75, 134),
    (0.9, 138),
    (0.95, 140),
    (0.99, 143),
    (1.0, 150),
)
LONGEST_CHARACTERS = 157
# (feature, share of all texts, most characters it takes from the rest of the text)
FEATURES = (
    ("link", 0.52, 23),
    ("foreign", 0.047, 0),
    ("handle", 0.27, 20),
    ("hashtag", 0.24, 17),
    ("symbol", 0.047, 8),
    ("line_break", 0.06, 8),
    ("entity", 0.05, 16),
)


@dataclass(frozen=True)
class SampleRow:
    """One synthetic tweet.

    Attributes:
        id: counts from 1.
        keyword: the word or words it was written around; empty for a few.
        location: where its writer says to live; empty for a third.
        text: 6 to 157 characters.
        target: 1 tells of an incident, 0 is a figure of speech; None in the last 3,263 rows, as in the real corpus.
    """

    id: int
    keyword: str
    location: str
    text: str
    target: int | None


def build_sample(seed: int = 0) -> Path:
    """Return the CSV file of the whole synthetic corpus, written on the first call for this seed and this generator."""
    modules = (__file__, sample_writer.__file__, sample_vocabulary.__file__)
    sources = {Path(module).name: file_sha256(Path(module)) for module in modules}
    key = {"what": "synthetic tweets", "seed": seed, "rows": ROWS, "sources": sources}
    return build_once("corpus", key, lambda folder: write_rows(sample_rows(seed), folder / "tweets.csv")) / "tweets.csv"


def write_rows(rows: Sequence[SampleRow], path: Path) -> None:
    """Write tweets as CSV (UTF-8, LF); what is missing is an empty field."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(SampleRow)])
        writer.writerows(astuple(row) for row in rows)


def sample_rows(seed: int = 0, rows: int = ROWS) -> list[SampleRow]:
    """Make synthetic tweets; equal arguments give equal tweets on every Python.

    Args:
        seed: any integer.
        rows: how many; the statistics are those of the real corpus from about a thousand on.

    Raises:
        SettingError: `rows` is below 1.
    """
    if rows < 1:
        raise SettingError(f"rows is {rows}: a sample has at least 1 row.")
    chance = Chance(seed)
    writer = TweetWriter(chance)
    repeats = set(chance.some(range(1, rows), round(rows * SHARE_REPEATED)))
    made: list[SampleRow] = []
    seen: set[str] = set()
    for index, plan in enumerate(_plans(chance, rows)):
        row = chance.pick(made) if index in repeats else _new_row(plan, chance, writer, seen)
        target = row.target if index in repeats else int(plan.incident)
        labelled = index < round(rows * SHARE_WITH_TARGET)
        made.append(SampleRow(index + 1, row.keyword, row.location, row.text, target if labelled else None))
    return made


def _new_row(plan: Plan, chance: Chance, writer: TweetWriter, seen: set[str]) -> SampleRow:
    keyword = chance.pick(sample_vocabulary.KEYWORDS)
    text = writer.tweet(plan, keyword)
    while text in seen:
        keyword = chance.pick(sample_vocabulary.KEYWORDS)
        text = writer.tweet(plan, keyword)
    seen.add(text)
    location = "" if chance.happens(SHARE_WITHOUT_LOCATION) else chance.pick(sample_vocabulary.PLACES)
    return SampleRow(0, "" if chance.happens(SHARE_WITHOUT_KEYWORD) else keyword, location, text, None)


def _plans(chance: Chance, rows: int) -> list[Plan]:
    """Lengths at evenly spaced quantiles, features by quota, shuffled: the seed hardly moves their statistics."""
    lengths = chance.some([_length_at((index + 0.5) / rows) for index in range(rows)], rows)
    densest = chance.below(rows)
    lengths[densest] = LONGEST_CHARACTERS
    room = [length - SHORTEST_BODY_CHARACTERS for length in lengths]
    features: list[set[str]] = [set() for _ in range(rows)]
    for name, share, characters in FEATURES:
        able = [index for index in range(rows) if room[index] >= characters]
        for index in chance.some(able, round(share * rows)):
            features[index].add(name)
            room[index] -= characters
    if rows == ROWS:
        features[densest] = {"reading"}
    incidents = set(chance.some(range(rows), round(SHARE_INCIDENT * rows)))
    return [Plan(lengths[index], index in incidents, frozenset(features[index])) for index in range(rows)]


def _length_at(share: float) -> int:
    """Characters of the text that is longer than this share of the corpus."""
    position = bisect.bisect_right([quantile for quantile, _ in LENGTH_QUANTILES], share)
    (low, shorter), (high, longer) = LENGTH_QUANTILES[position - 1 : position + 1]
    return round(shorter + (share - low) / (high - low) * (longer - shorter))
