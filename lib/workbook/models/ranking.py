"""Does an encoder understand? Questions that must find their own answer, in three languages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from workbook.models.e5 import Encoder, embed

if TYPE_CHECKING:
    import pandas as pd

QUESTIONS = (
    (
        "English",
        "how long should rice rest after cooking",
        "Leave the pot covered for ten minutes once the heat is off, so that the grains firm up before you stir them.",
    ),
    (
        "German",
        "Wie erkenne ich, ob ein Gewitter näher kommt?",
        "Zähle die Sekunden zwischen Blitz und Donner: Wird die Zahl kleiner, zieht die Wolke auf dich zu.",
    ),
    (
        "Chinese",
        "怎样给自行车轮胎补胎",
        "先把内胎取出来找到漏气的小孔,打磨干净后涂上胶水,贴好补片再充气。",
    ),
)
"""Language, question, the passage that answers it."""


def ranking_table(encoder: Encoder) -> pd.DataFrame:
    """Cosine of each question to each passage.

    e5 puts "query: " before a question and "passage: " before a text that may answer it (its model card); an encoder
    that was trained without prefixes gets none.

    Returns:
        Index: the question's language; one column a passage's language; `ranks right`: its own passage comes first.
    """
    import pandas as pd

    languages, questions, passages = (list(column) for column in zip(*QUESTIONS, strict=True))
    query_side = replace(encoder, prefix="query: " if encoder.prefix else "")
    passage_side = replace(encoder, prefix="passage: " if encoder.prefix else "")
    cosines = embed(query_side, questions) @ embed(passage_side, passages).T
    table = pd.DataFrame(cosines, index=pd.Index(languages, name="question in"), columns=languages)
    table["ranks right"] = cosines.argmax(axis=1) == range(len(QUESTIONS))
    return table
