"""The workbook's panels as a reader meets them: found on the page by their classes, moved by keyboard and mouse."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from playwright.sync_api import Locator, Page

PATIENCE_S = 60.0
"""How long to wait for something that takes well under a second: the machine may be busy with other things."""
ACTS_ON_MEASURE = {
    "live": {"ask", "transport", "requests in flight", "seconds"},
    "bring-your-own": {"model", "text", "text column", "rows"},
}
"""Controls, by panel, that say what is measured next; all others change what is drawn at once."""

KINDS = {
    "slider": ".widget-slider .noUi-handle",
    "dropdown": ".widget-dropdown select",
    "list": ".widget-select-multiple select",
    "toggles": ".widget-toggle-buttons",
    "checkbox": ".widget-checkbox input",
    "number": "input[type=number]",
    "text": "input[type=text]",
}
"""Kinds of controls and where they take the mouse or the keyboard."""

_ARIA = ("min", "now", "max")

PICTURE = """panel => {
    const shapes = 'path, text, rect, circle, line, image';
    const drawings = [...panel.querySelectorAll('.js-plotly-plot .main-svg')];
    const seen = drawings.flatMap(drawing => [...drawing.querySelectorAll(shapes)])
        .filter(shape => !shape.closest('.hoverlayer, .draglayer, defs'))
        .map(shape => ['d', 'transform', 'x', 'y', 'width', 'height', 'style'].map(name => shape.getAttribute(name))
            .concat(shape.tagName === 'text' ? shape.textContent : '').join(' ')).join('\\n');
    let hash = 0;
    for (let place = 0; place < seen.length; place++) hash = (Math.imul(31, hash) + seen.charCodeAt(place)) | 0;
    return `${seen.length} ${hash}`;
}"""
"""What the figures of a panel show, in a few characters: shapes and words, without the ids that each drawing makes."""

WATCH = """panel => {
    panel.workbookSeen = [];
    const look = () => {
        const status = panel.querySelector('.workbook-panel-status');
        if (panel.querySelector('.workbook-measure').disabled) panel.workbookSeen.push(status.innerText);
    };
    new MutationObserver(look).observe(panel, {subtree: true, childList: true, attributes: true, characterData: true});
}"""


@dataclass(frozen=True)
class Control:
    """One control of a panel.

    Attributes:
        kind: a key of KINDS.
        name: what a reader, or a screen reader, calls it.
        place: what takes the mouse or the keyboard.
    """

    kind: str
    name: str
    place: Locator

    def moves(self) -> Iterator[str]:
        """Move it to one position after another and back to where it was; each in words."""
        if self.kind == "slider":
            yield from self._slides()
        elif self.kind == "dropdown":
            for value in self._options():
                self.place.select_option(value)
                yield value
        elif self.kind == "list":
            values = self._options()
            for chosen in (values[:1], values) if len(values) > 1 else ():
                self.place.select_option(chosen)
                yield ", ".join(chosen)
        elif self.kind == "toggles":
            buttons = self.place.locator("button").all()
            pressed = next(place for place, button in enumerate(buttons) if "mod-active" in _classes(button))
            for button in buttons[pressed + 1 :] + buttons[: pressed + 1]:
                button.click()
                yield button.inner_text()
        elif self.kind == "checkbox":
            for _ in range(2):
                self.place.click()
                yield "clicked"
        elif self.kind == "number":
            for key in ("ArrowUp", "ArrowUp", "ArrowDown", "ArrowDown"):
                self.place.press(key)
                self.place.press("Enter")
                yield key

    def _slides(self) -> Iterator[str]:
        """One step to the side where there is more room, five more, and back."""
        lowest, start, highest = (float(self.place.get_attribute(f"aria-value{name}") or 0) for name in _ARIA)
        there, back = ("ArrowRight", "ArrowLeft") if highest - start > start - lowest else ("ArrowLeft", "ArrowRight")
        for steps in (1, 5):
            for _ in range(steps):
                self.place.press(there)
            yield f"{there}, {steps} times"
        for _ in range(6):
            if float(self.place.get_attribute("aria-valuenow") or 0) != start:
                self.place.press(back)
        yield "back"

    def write(self, text: str) -> None:
        """Type into a field, and leave it."""
        self.place.fill(text)
        self.place.press("Enter")
        self.place.blur()

    def _options(self) -> list[str]:
        """The values of a list, the one chosen now last."""
        options = self.place.locator("option").all()
        values = [option.get_attribute("value") or "" for option in options]
        now = self.place.evaluate("select => select.selectedIndex")
        return values[now + 1 :] + values[: now + 1] if self.kind == "dropdown" else values


@dataclass(frozen=True)
class PanelOnPage:
    """One panel.

    Attributes:
        page: the browser's page.
        box: the root of the panel.
        name: what kind of panel it is, from its class `workbook-panel-NAME`.
    """

    page: Page
    box: Locator
    name: str

    def controls(self) -> list[Control]:
        """Everything that can be moved, in the order of KINDS."""
        return [
            Control(kind, _name_of(place), place)
            for kind, selector in KINDS.items()
            for place in self.box.locator(selector).all()
        ]

    def picture(self) -> str:
        """What its figures show, once they stand still."""
        ends = time.monotonic() + PATIENCE_S
        now = self.box.evaluate(PICTURE)
        while time.monotonic() < ends:
            self.page.wait_for_timeout(150)
            before, now = now, self.box.evaluate(PICTURE)
            if before == now:
                break
        return str(now)

    def wait_for_another_picture(self, before: str, timeout_s: float) -> float | None:
        """Seconds until the figures show something else than before; None where they do not."""
        started = time.monotonic()
        while time.monotonic() < started + timeout_s:
            if self.box.evaluate(PICTURE) != before:
                return time.monotonic() - started
            self.page.wait_for_timeout(20)
        return None

    def said(self, what: str) -> str:
        """Words in its line for an `error`, its `reading` or its `status`; empty where there are none."""
        return " ".join(line.inner_text().strip() for line in self.box.locator(f".workbook-panel-{what}").all()).strip()

    def has_button(self, name: str) -> bool:
        """Whether it has the button `measure` or `cancel`."""
        return self.box.locator(f".workbook-{name}").count() == 1

    def button(self, name: str) -> Locator:
        """The button `measure` or `cancel`."""
        return self.box.locator(f".workbook-{name}")

    def watch(self) -> None:
        """Note from now on each status that is shown while the button to measure cannot be pressed."""
        self.box.evaluate(WATCH)

    def wait_until_seen(self, part: str) -> None:
        """Wait until a status with the part has been noted, be it gone by now."""
        seen = "([panel, part]) => panel.workbookSeen.some(status => status.includes(part))"
        self.page.wait_for_function(seen, arg=[self.box.element_handle(), part], timeout=1000 * PATIENCE_S)

    def wait_for_no_error(self) -> str:
        """Empty once it shows no error; the error where it stays."""
        ends = time.monotonic() + PATIENCE_S
        while (words := self.said("error")) and time.monotonic() < ends:
            self.page.wait_for_timeout(20)
        return words

    def wait_for_error(self) -> str:
        """The sentence in its line for errors, once there is one."""
        return self._wait_for("error", "")

    def wait_for_status(self, part: str) -> str:
        """The status, once it holds the part."""
        return self._wait_for("status", part)

    def _wait_for(self, line: str, part: str) -> str:
        ends = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends:
            words = self.said(line)
            if words and part in words:
                return words
            self.page.wait_for_timeout(20)
        raise AssertionError(f"{self.name}: its {line} stays {self.said(line)!r}")

    def wait_until_measured(self, timeout_s: float = 240) -> str:
        """Wait until its button can be pressed again and its status is no share any more; the status then."""
        over = """panel => !panel.querySelector('.workbook-measure').disabled
            && !panel.querySelector('.workbook-panel-status').innerText.includes('%')"""
        self.page.wait_for_function(over, arg=self.box.element_handle(), timeout=1000 * timeout_s)
        return self.said("status")


def panels_on(page: Page) -> list[PanelOnPage]:
    """All panels on the page, from top to bottom."""
    boxes = page.locator(".workbook-panel").all()
    return [PanelOnPage(page, box, _kind_of(box)) for box in boxes]


def _kind_of(box: Locator) -> str:
    return next(name for each in _classes(box) if (name := each.removeprefix("workbook-panel-")) != each)


def _name_of(place: Locator) -> str:
    label = "place => place.closest('.widget-inline-hbox').querySelector('.widget-label')?.innerText"
    return (place.evaluate(label) or "").strip()


def _classes(place: Locator) -> list[str]:
    return (place.get_attribute("class") or "").split()
