"""HTML page of a report: data, style, code and Plotly in one file, and its live companion."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dse.execution.study import Study
from dse.report.first_paint import header_html, table_html
from dse.report.page_parts import embed_json, fill_page, pack_bundle
from dse.report.payload import report_payload
from dse.report.reported_study import ReportedStudy
from dse.terminal.atomic_files import write_atomically

SCRIPTS = (
    "text.js",
    "designs.js",
    "plot.js",
    "theme.js",
    "cloud.js",
    "front.js",
    "points.js",
    "link.js",
    "keys.js",
    "parallel.js",
    "table.js",
    "shortlist.js",
    "design.js",
    "why.js",
    "verified.js",
    "figures.js",
    "cards.js",
    "provenance.js",
    "head.js",
    "live.js",
    "page.js",
)
"""The page's code in reading order: what is shown, then each view of it, then what ties them."""


def write_report(part: ReportedStudy) -> tuple[Path, list[str]]:
    """Write the report of a study; returns its path and its caveats about knobs without effect."""
    data, path = report_payload([part]), report_path([part.study])
    _replace_file(path, render_page(data))
    (study,) = data["studies"]
    return path, [remark["text"] for remark in study["why"]["remarks"] if remark["kind"] == "knob"]


def report_path(studies: Sequence[Study]) -> Path:
    """Path of the report of some studies: in the run folder of the first."""
    others = "".join(f"_{study.name}" for study in studies[1:])
    return studies[0].run_dir / f"report{others}.html"


def write_page(parts: Sequence[ReportedStudy], path: Path) -> Path:
    """Write one page on one or several studies; returns its path."""
    _replace_file(path, render_page(report_payload(parts)))
    return path


def render_page(data: dict[str, Any], live: str = "") -> str:
    """The page as text; `live` names the file beside it that announces new data."""
    title = ", ".join(study["name"] for study in data["studies"])
    in_space = any(len(study["objectives"]) > 2 for study in data["studies"])
    return fill_page(
        "page.html",
        title,
        SCRIPTS,
        data,
        live=html.escape(live),
        header=header_html(data["studies"]),
        table=table_html(data["studies"]),
        plotly=pack_bundle("basic"),
        space=pack_bundle("gl3d" if in_space else ""),
    )


class LivePage:
    """A page that the browser keeps up to date from a stamp file that it polls and a data file.

    Both are scripts, since a page from a file may load scripts, and nothing else, from its folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp, self._data = path.with_suffix(".live.js"), path.with_suffix(".data.js")
        self._number = 0

    def write(self, data: dict[str, Any]) -> None:
        """Update the page, on disk and where it is open."""
        _replace_file(self._path, render_page(data, live=self._stamp.name))
        self._tell_page(data, done=False)

    def close(self, data: dict[str, Any]) -> None:
        """Write the final page, and notify open pages that it is complete."""
        _replace_file(self._path, render_page(data))
        self._tell_page(data, done=True)

    def remove(self) -> None:
        """Remove the companion files of the live page."""
        self._stamp.unlink(missing_ok=True)
        self._data.unlink(missing_ok=True)

    def _tell_page(self, data: dict[str, Any], *, done: bool) -> None:
        self._number += 1
        _replace_file(self._data, f"takeData({embed_json(data)});\n")
        stamp = {"stamp": data["written"] + f" {self._number}", "data": self._data.name, "done": done}
        _replace_file(self._stamp, f"takeStamp({embed_json(stamp)});\n")


def _replace_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as place:
        place.write_text(text, encoding="utf-8")
