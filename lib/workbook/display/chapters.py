"""An executed notebook as a chapter of the report: outputs shown, code folded away, nothing loaded from elsewhere."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbook.display.panel import STATIC_FIGURE

PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
PAPERMILL_ERROR = "papermill-error-cell-tag"
"""Tag of the cells papermill adds to a notebook that failed; the page says so in its own way."""

NUMBER = re.compile(r"[-+±×<>≤≥~]?\s?\.?\d")
"""How a cell begins that holds a number."""

LONG_CELL = 40
"""Characters from which on a table's cell is text to be read, and gets the width for it."""

WIDGET_NOTE = "<p class='note'>Interactive in JupyterLab; here as it stood when the notebook ran.</p>"

TEMPLATE = """
{%- extends 'basic/index.html.j2' -%}
{% block input_group %}<div class="code">{{ super() }}</div>{% endblock %}
{% block stream_stderr %}<div class="code">{{ super() }}</div>{% endblock %}
{% block footer %}{% endblock %}
"""


@dataclass(frozen=True)
class Chapter:
    """One notebook, ready to be put on the page.

    Attributes:
        anchor: id of its section, the notebook's stem.
        title: its first heading.
        body: HTML; headings start at h2, ids begin with the anchor.
        failed: whether a cell ended in an error.
    """

    anchor: str
    title: str
    body: str
    failed: bool


def read_chapter(path: Path) -> Chapter:
    """Turn an executed notebook into a chapter."""
    import nbformat

    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    notebook.cells = [cell for cell in notebook.cells if PAPERMILL_ERROR not in cell.metadata.get("tags", ())]
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    for number, output in enumerate(outputs):
        if "data" in output:
            output["data"] = _report_data(output["data"], f"{path.stem}-figure-{number}")
    for cell in notebook.cells:
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if output.get("data", "shown")]
    title, body = _tidy(_to_html(notebook, path), path.stem)
    return Chapter(path.stem, title, body, any(output["output_type"] == "error" for output in outputs))


def figure_html(figure: Mapping[str, Any], anchor: str) -> str:
    """A plotly figure as HTML that the page's script fills in.

    The title becomes the caption, where it wraps on a narrow screen; the reading becomes the text alternative, which
    stands beside the drawing, since the drawing has buttons of its own and so cannot be one picture.
    """
    layout = dict(figure.get("layout", {}))
    title = _title(layout.pop("title", {}))
    if title[0]:
        layout["margin"] = {**layout.get("margin", {}), "t": 32}
    reading = (layout.get("meta") or {}).get("reading") or title[0] or "figure"
    data = json.dumps({"data": figure.get("data", []), "layout": layout}).replace("</", "<\\/")
    height = int(layout.get("height") or 400)
    subtitle = f"<small>{_in_one_line(title[1])}</small>" if title[1] else ""
    caption = f'<figcaption id="{anchor}-title">{_in_one_line(title[0])}{subtitle}</figcaption>' if title[0] else ""
    named = f'aria-labelledby="{anchor}-title"' if caption else 'aria-label="figure"'
    return (
        f'<figure class="plot" {named} aria-describedby="{anchor}-reading">{caption}'
        f'<p class="unseen" id="{anchor}-reading">{html.escape(reading)}</p>'
        f'<div class="drawing"><div data-figure="{anchor}" style="min-height:{height}px"></div></div>'
        f'<script type="application/json" id="{anchor}">{data}</script></figure>'
    )


def _in_one_line(text: str) -> str:
    """A title broken for one width, to be broken anew by the page."""
    return re.sub(r"\s*<br>\s*", " ", text)


def _report_data(data: Mapping[str, Any], anchor: str) -> dict[str, Any]:
    """What the report shows of one output: a figure, a note in a widget's place, or the output as it is."""
    if STATIC_FIGURE in data:
        return {"text/html": figure_html(data[STATIC_FIGURE], anchor) + WIDGET_NOTE}
    if PLOTLY in data:
        return {"text/html": figure_html(data[PLOTLY], anchor)}
    if WIDGET in data:
        return {}  # a progress bar, or a control without a figure: nothing that would say anything on paper
    return {kind: value for kind, value in data.items() if kind != "application/javascript"}


def _title(title: Any) -> tuple[str, str]:
    """Title and subtitle of a plotly figure; both may hold the few tags plotly draws, such as `<br>` and `<b>`."""
    if isinstance(title, str):
        return title, ""
    return title.get("text") or "", (title.get("subtitle") or {}).get("text") or ""


def _to_html(notebook: Any, path: Path) -> str:
    from jinja2 import DictLoader
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="basic",
        extra_loaders=[DictLoader({"chapter.html.j2": TEMPLATE})],
        template_file="chapter.html.j2",
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        embed_images=True,
    )
    body, _ = exporter.from_notebook_node(notebook, {"metadata": {"path": str(path.parent)}})
    return str(body)


def _tidy(body: str, anchor: str) -> tuple[str, str]:
    """Put headings, ids, tables and pictures in order; return the title and the body."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(body, "html.parser")
    for unwanted in soup.select("script[src], a.anchor-link"):
        unwanted.decompose()
    headings = soup.find_all(re.compile(r"^h[1-6]$"))
    for heading in headings:
        heading.name = f"h{min(6, int(heading.name[1]) + 1)}"
    first = next((heading for heading in headings if heading.name == "h2"), None)
    title = first.get_text(" ", strip=True) if first else anchor.replace("_", " ")
    if first is None:
        added = soup.new_tag("h2")
        added.string = title
        soup.insert(0, added)
    _make_ids_unique(soup, anchor)
    for table in soup.find_all("table"):
        _name_headers(table)
        _align_words(table)
        words = table.caption.get_text(" ", strip=True) if table.caption else "table"
        table.wrap(
            soup.new_tag("div", attrs={"class": "scroll", "tabindex": "0", "role": "group", "aria-label": words})
        )
    for cell in soup.find_all("td"):
        if len(cell.get_text()) > LONG_CELL:
            cell["class"] = f"{' '.join(cell.get_attribute_list('class'))} long"
    for picture in soup.find_all("img"):
        picture["alt"] = picture.get("alt") or "picture"
        if not str(picture.get("src", "")).startswith("data:"):
            picture.replace_with(f"[{picture['alt']}]")
    return title, str(soup)


def _name_headers(table: Any) -> None:
    """Say of each heading what it heads; a heading without a word heads nothing."""
    for heading in table.find_all("th"):
        if not heading.get_text(strip=True):
            heading.name = "td"
        else:
            heading["scope"] = "col" if heading.find_parent("thead") else "row"


def _align_words(table: Any) -> None:
    """Mark the columns that hold words, heading and cells: numbers stand at the right, words read from the left."""
    rows = [row.find_all(["th", "td"]) for row in table.find_all("tr")]
    if any(cell.get("colspan") for row in rows for cell in row) or not table.tbody:
        return
    body = [row.find_all(["th", "td"]) for row in table.tbody.find_all("tr")]
    for column in range(min(map(len, rows), default=0)):
        texts = [row[column].get_text(strip=True) for row in body]
        if any(texts) and not any(NUMBER.match(text) for text in texts):
            for row in rows:
                row[column]["class"] = [*row[column].get_attribute_list("class"), "words"]


def _make_ids_unique(soup: Any, anchor: str) -> None:
    """Every chapter has a heading "Reading": ids get the chapter's anchor in front, and links to them too."""
    for tag in soup.find_all(id=True):
        if not tag["id"].startswith((anchor, "T_")):  # the rules of a styled table name it by its id
            tag["id"] = f"{anchor}-{tag['id']}"
    for link in soup.find_all("a", href=re.compile("^#")):
        link["href"] = f"#{anchor}-{link['href'][1:]}"
