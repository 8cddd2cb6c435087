"""Plotly, and Kaleido, which draws its figures as files: the only module that imports them."""

from pathlib import Path
from typing import Any

import plotly.graph_objects

from dse.report.figure_style import FigureSpec, compose_panels
from dse.report.standalone_pages import build_figure_page
from dse.space.errors import DesignError, suggest_nearest
from dse.terminal.atomic_files import write_atomically

FORMATS = ("html", "svg", "png")
"""Kinds of file that a figure is written to, by the end of the name."""

PNG_SCALE = 2.0
"""Pixels of a PNG for each unit of the layout."""


def make_plotly_figure(spec: FigureSpec) -> Any:
    """A figure as a `plotly.graph_objects.Figure`."""
    return plotly.graph_objects.Figure(compose_panels(spec))


def figure_format(path: Path) -> str:
    """Kind of file by the end of its name.

    Raises:
        DesignError: with the kinds there are.
    """
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in FORMATS:
        raise DesignError(
            f"figure --out: {path.name}: expected a name that ends in {', '.join(f'.{name}' for name in FORMATS)}; "
            f"{suggest_nearest(suffix or path.name, FORMATS)}"
        )
    return suffix


def write_figure(spec: FigureSpec, path: Path) -> None:
    """Write a figure to an HTML page of its own, an SVG or a PNG, by the end of the name.

    Raises:
        DesignError: another kind of file, no such folder, or what draws images is absent.
    """
    kind = figure_format(path)
    if path.is_dir() or not path.parent.is_dir():
        raise DesignError(f"figure --out: {path} is not a file in a folder that exists; name one, as in --out front.{kind}")
    content = (
        build_figure_page(spec).encode() if kind == "html" else _draw_image(make_plotly_figure(spec).to_plotly_json(), kind)
    )
    with write_atomically(path) as place:
        place.write_bytes(content)


def _draw_image(figure: dict[str, Any], kind: str) -> bytes:
    """Content of an image file; nothing is fetched from elsewhere."""
    try:
        import kaleido
        from kaleido.errors import ChromeNotFoundError
    except ImportError:
        raise DesignError(
            f"figure --out: .{kind} needs Kaleido: pip install 'mesh-dse[figures]'; or write .html, which needs nothing"
        ) from None
    layout = figure["layout"]
    size = {"format": kind, "width": layout["width"], "height": layout["height"]}
    options = size | ({"scale": PNG_SCALE} if kind == "png" else {})
    try:
        return bytes(kaleido.calc_fig_sync(figure, opts=options, kopts={"mathjax": False}))
    except ChromeNotFoundError:
        raise DesignError(
            f"figure --out: .{kind} needs Chromium or Chrome: apt-get install chromium, or set BROWSER_PATH to its program"
        ) from None
