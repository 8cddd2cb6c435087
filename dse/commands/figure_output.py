"""``dse figure``: one figure of a study as an HTML page, an SVG or a PNG."""

from pathlib import Path

from rich.markup import escape

from dse.commands.notebook_api import load
from dse.report.figures import build_figure, check_figure_name
from dse.report.plotly_library import figure_format, write_figure
from dse.terminal.progress import say


def write_study_figure(study: str, name: str, out: str, *overrides: str, trust: bool = False, **options: str) -> Path:
    """Write a figure of a study to a file, and print its title and caption; returns the path.

    Args:
        study: name of the study.
        name: of the figure.
        out: path of the file; empty string for ``NAME.html`` in the run's folder.
        overrides: as of `load`.
        trust: whether files may run code.
        options: of the figure; empty ones do not count.
    """
    check_figure_name(name)
    loaded = load(study, *overrides, trust=trust)
    path = Path(out) if out else loaded.study.run_dir / f"{name}.html"
    figure_format(path)  # before work that would be lost
    spec = build_figure(loaded.part(), name, **options)
    write_figure(spec, path)
    say(f"[bold]{escape(spec.title)}[/]\n{escape(spec.caption)}")
    say(f"wrote   {escape(str(path))}")
    return path
