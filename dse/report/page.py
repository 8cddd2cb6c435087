"""The page itself: data, style, code and Plotly in one HTML file that needs nothing beside it, and its live companion."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dse.report.alone import HERE, embedded, plotly_code
from dse.report.data import Part, payload
from dse.running.study import Study
from dse.terminal.drafts import draft

SCRIPTS = (
    "text.js",
    "designs.js",
    "plot.js",
    "front.js",
    "keys.js",
    "parallel.js",
    "table.js",
    "shortlist.js",
    "design.js",
    "why.js",
    "verified.js",
    "cards.js",
    "provenance.js",
    "head.js",
    "page.js",
)
"""The page's code in reading order: what is shown, then each view of it, then what ties them."""


def write(part: Part) -> tuple[Path, list[str]]:
    """Write the report of a study; its path, and what it says of knobs without effect."""
    data, path = payload([part]), place([part.study])
    _replace(path, page(data))
    (study,) = data["studies"]
    return path, [remark["text"] for remark in study["why"]["remarks"] if remark["kind"] == "knob"]


def place(studies: Sequence[Study]) -> Path:
    """Where the report of some studies goes: the run folder of the first."""
    others = "".join(f"_{study.name}" for study in studies[1:])
    return studies[0].run_dir / f"report{others}.html"


def write_page(parts: Sequence[Part], path: Path) -> Path:
    """Writes one page on one study or several; returns its path."""
    _replace(path, page(payload(parts)))
    return path


def page(data: dict[str, Any], live: str = "") -> str:
    """The page as text; `live` names the file, beside it, that says when there is something new."""
    title = ", ".join(study["name"] for study in data["studies"])
    filled = {
        "{{title}}": html.escape(title),
        "{{style}}": (HERE / "page.css").read_text(),
        "{{live}}": html.escape(live),
        "{{data}}": embedded(data),
        "{{plotly}}": plotly_code(),
        "{{code}}": "\n".join((HERE / name).read_text() for name in SCRIPTS),
    }
    head, *rest = (HERE / "page.html").read_text().split("{{")
    pieces = [head]
    for piece in rest:
        name, _, after = piece.partition("}}")
        pieces += [filled["{{" + name + "}}"], after]
    return "".join(pieces)


class Live:
    """A page that a browser keeps up to date: beside it, a stamp that it polls and the data that it then takes.

    Both are scripts, as a page from a file may load scripts, and nothing else, from beside itself.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp, self._data = path.with_suffix(".live.js"), path.with_suffix(".data.js")
        self._number = 0

    def write(self, data: dict[str, Any]) -> None:
        """Brings the page up to date, on disk and where it is open."""
        _replace(self._path, page(data, live=self._stamp.name))
        self._tell(data, done=False)

    def close(self, data: dict[str, Any]) -> None:
        """Writes the page as it stays, and tells those who have it open that it is complete."""
        _replace(self._path, page(data))
        self._tell(data, done=True)

    def remove(self) -> None:
        """Removes the companions."""
        self._stamp.unlink(missing_ok=True)
        self._data.unlink(missing_ok=True)

    def _tell(self, data: dict[str, Any], *, done: bool) -> None:
        self._number += 1
        _replace(self._data, f"takeData({embedded(data)});\n")
        stamp = {"stamp": data["written"] + f" {self._number}", "data": self._data.name, "done": done}
        _replace(self._stamp, f"takeStamp({embedded(stamp)});\n")


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft(path) as place:
        place.write_text(text, encoding="utf-8")
