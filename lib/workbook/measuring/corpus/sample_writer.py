"""Writes one synthetic tweet at a time, to a planned length, label and set of features."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from workbook.measuring.corpus import sample_vocabulary as vocabulary

# How much of the text says nothing about its label: what keeps a classifier from being perfect.
SHARE_AMBIGUOUS_TEXTS = 0.25
SHARE_CUT_MID_WORD = 0.5
SHARE_SECOND_LINK = 0.5
SHARE_MORE_HASHTAGS = 0.8
SHARE_SECOND_HANDLE = 0.15
SHORT_TEXT_CHARACTERS = 30
LONG_TEXT_CHARACTERS = 120
MORE_CLAUSES = 4
MOST_HASHTAGS = 8
SHORTEST_BODY_CHARACTERS = 14
SHORTEST_CLAUSE_CHARACTERS = 14

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LISTS = {
    "place": vocabulary.PLACES,
    "site": vocabulary.SITES,
    "crew": vocabulary.CREWS,
    "thing": vocabulary.THINGS,
    "person": vocabulary.PERSONS,
    "mood": vocabulary.MOODS,
}
SEPARATORS = (". ", ", ", " - ", "; ", "! ", " and ", ": ")
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What a tweet is to be before it has words.

    Attributes:
        characters: its exact length.
        incident: whether it tells of an incident or uses the word as a figure of speech.
        features: of `link`, `hashtag`, `handle`, `foreign`, `symbol`, `line_break`, `entity`, and alone `reading`.
    """

    characters: int
    incident: bool
    features: frozenset[str]


class Chance:
    """The few kinds of random choice the generator needs.

    They draw from `random.Random.random` alone, whose sequence Python promises to keep: one seed gives the same tweets
    in every version.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def happens(self, share: float) -> bool:
        """True in this share of the calls."""
        return self._random() < share

    def below(self, bound: int) -> int:
        """A whole number from 0 to `bound - 1`."""
        return int(self._random() * bound)

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices, each as likely as any other."""
        return choices[self.below(len(choices))]

    def some(self, choices: Sequence[T], count: int) -> list[T]:
        """`count` different choices in random order; all of them where there are fewer."""
        keys = [self._random() for _ in choices]
        return [choices[index] for index in sorted(range(len(choices)), key=keys.__getitem__)[:count]]


class TweetWriter:
    """Puts words to plans."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance

    def tweet(self, plan: Plan, keyword: str) -> str:
        """Write a tweet of exactly `plan.characters` characters with every planned feature, about the keyword."""
        if "reading" in plan.features:
            return self._readings(plan.characters)
        start = self._start(plan)
        end = self._end(plan, plan.characters - len(start))
        body = self._body(plan, keyword, plan.characters - len(start) - len(end))
        return self._with_line_break(start + body + end) if "line_break" in plan.features else start + body + end

    def _start(self, plan: Plan) -> str:
        if "handle" not in plan.features:
            return ""
        second = plan.characters >= LONG_TEXT_CHARACTERS and self._chance.happens(SHARE_SECOND_HANDLE)
        return "".join(f"@{self._handle()} " for _ in range(1 + second))

    def _end(self, plan: Plan, room: int) -> str:
        pieces: list[str] = []
        if "symbol" in plan.features:
            pieces.append(self._chance.pick(vocabulary.SYMBOLS))
        if "entity" in plan.features:
            pieces.append(self._chance.pick(vocabulary.ENTITIES))
        if "hashtag" in plan.features:
            pieces.append(self._hashtag())
        if "link" in plan.features:
            pieces.append(self._link())
        free = room - SHORTEST_BODY_CHARACTERS - len(_joined(pieces))
        return _joined(pieces + self._second_helping(plan, free))

    def _second_helping(self, plan: Plan, free: int) -> list[str]:
        """A second link, more hashtags: what makes long tweets heavy in tokens. Takes at most `free` characters."""
        pieces: list[str] = []
        if plan.characters < LONG_TEXT_CHARACTERS:
            return pieces
        if "hashtag" in plan.features and self._chance.happens(SHARE_MORE_HASHTAGS):
            pieces += [self._hashtag() for _ in range(self._chance.below(MOST_HASHTAGS))]
        if "link" in plan.features and self._chance.happens(SHARE_SECOND_LINK):
            pieces.append(self._link())
        while len(_joined(pieces)) > free:
            pieces.pop(0)
        return pieces

    def _body(self, plan: Plan, keyword: str, room: int) -> str:
        if "foreign" in plan.features:
            first, *more = self._shuffled(self._chance.pick(vocabulary.FOREIGN)[not plan.incident])
        else:
            telling = plan.characters >= SHORT_TEXT_CHARACTERS and not self._chance.happens(SHARE_AMBIGUOUS_TEXTS)
            first = self._first_clause(plan, keyword, telling)
            more = self._more_clauses(plan, telling)
        text = self._filled(first, keyword)
        while more and room - len(text) >= SHORTEST_CLAUSE_CHARACTERS:
            text += (" " if text[-1] in ".!?" else self._chance.pick(SEPARATORS)) + self._filled(more.pop())
        if len(text) > room >= LONG_TEXT_CHARACTERS // 2 and self._chance.happens(SHARE_CUT_MID_WORD):
            return text[: room - 3] + "..."
        return self._closed(_cut(text, room), room)

    def _first_clause(self, plan: Plan, keyword: str, telling: bool) -> str:
        if plan.characters < SHORT_TEXT_CHARACTERS:
            return self._chance.pick(vocabulary.SHORT)
        is_event = keyword in vocabulary.EVENTS
        if not telling:
            return self._chance.pick(vocabulary.EITHER_EVENT if is_event else vocabulary.EITHER_STATE)
        if plan.incident:
            return self._chance.pick(vocabulary.INCIDENT_EVENT if is_event else vocabulary.INCIDENT_STATE)
        return self._chance.pick(vocabulary.FIGURATIVE_EVENT if is_event else vocabulary.FIGURATIVE_STATE)

    def _more_clauses(self, plan: Plan, telling: bool) -> list[str]:
        """Clauses to go on with, in random order and none twice: some tell the label, or none does."""
        either = self._chance.some(vocabulary.EITHER_MORE, 2 * MORE_CLAUSES)
        if not telling:
            return either
        labelled = vocabulary.INCIDENT_MORE if plan.incident else vocabulary.FIGURATIVE_MORE
        return self._shuffled(self._chance.some(labelled, MORE_CLAUSES) + either[:MORE_CLAUSES])

    def _shuffled(self, clauses: Sequence[str]) -> list[str]:
        return self._chance.some(clauses, len(clauses))

    def _filled(self, clause: str, keyword: str = "") -> str:
        return re.sub(r"\{(\w+)\}", lambda slot: self._word(slot[1], keyword), clause)

    def _word(self, slot: str, keyword: str) -> str:
        name = slot.lower()
        if name == "hour":
            hour, minute = 1 + self._chance.below(12), self._chance.below(60)
            return f"{hour}:{minute:02d}{self._chance.pick(('am', 'pm', 'h', ' UTC'))}"
        if name == "digit":
            return str(1 + self._chance.below(9))
        if name == "number":
            return str(2 + self._chance.below(self._chance.pick((8, 48, 600))))
        word = keyword if name in ("event", "state") else self._chance.pick(LISTS[name])
        return word if slot == name else word[:1].upper() + word[1:]

    def _closed(self, text: str, room: int) -> str:
        """Bring the text to exactly `room` characters with closing words."""
        while len(text) < room:
            missing = room - len(text)
            fitting = [closer for closer in vocabulary.CLOSERS if len(closer) == missing]
            text += self._chance.pick(fitting or vocabulary.CLOSERS[-1:])
        return text

    def _with_line_break(self, text: str) -> str:
        spaces = [index for index, character in enumerate(text) if character == " "]
        after_sentences = [index for index in spaces if text[index - 1] in ".!?:;"]
        at = self._chance.pick(after_sentences or spaces or [len(text) // 2])
        return f"{text[:at]}\n{text[at + 1 :]}"

    def _handle(self) -> str:
        number = self._chance.pick(("", str(self._chance.below(1000))))
        return self._chance.pick(vocabulary.NAMES) + self._chance.pick(vocabulary.HANDLE_TAILS) + number

    def _hashtag(self) -> str:
        return "#" + self._chance.pick(vocabulary.TAGS)

    def _link(self) -> str:
        return "http://t.co/" + "".join(self._chance.pick(BASE62) for _ in range(10))

    def _readings(self, characters: int) -> str:
        """The one text of the corpus that is denser in tokens than any other: readings of a weather station."""
        text = ""
        while len(text) < characters:
            station = self._chance.pick("BDHKQVXZ") + str(self._chance.below(10))
            text += f"{station}={10 + self._chance.below(90)}.{self._chance.below(10)};"
        return text[: characters - len(vocabulary.END_OF_READINGS)] + vocabulary.END_OF_READINGS


def _joined(pieces: Sequence[str]) -> str:
    return "".join(f" {piece}" for piece in pieces)


def _cut(text: str, room: int) -> str:
    """The text up to the last word that ends within `room`; cut inside the word where there is only one."""
    if len(text) <= room:
        return text
    whole_words = text[: room + 1].rpartition(" ")[0]
    return whole_words or text[:room]
