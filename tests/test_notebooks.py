"""The notebooks of the documents run, cell by cell, and show what they say they show."""

import ast
import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from tests.test_documents import ROOT

NOTEBOOKS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/notebooks").glob("*.ipynb"))


def shown(notebook: str) -> list[Any]:
    """What each cell of code ends with, as a notebook would show it; cells share their names."""
    cells = [cell for cell in json.loads((ROOT / notebook).read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    values = []
    for cell in cells:
        body = ast.parse("".join(cell["source"])).body
        last = ast.Expression(body.pop().value) if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), notebook, "exec"), names)
        values.append(eval(compile(last, notebook, "eval"), names) if last is not None else None)
    return values


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_runs_and_shows_tables_and_pictures(notebook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = shown(notebook)
    tables = [value for value in values if isinstance(value, pd.DataFrame)]
    figures = [value for value in values if isinstance(value, go.Figure)]
    assert tables
    assert all(len(table) and not table.isna().any(axis=None) for table in tables)
    assert figures
    assert all(len(figure.data) and len(figure.data[0].x) for figure in figures)
    assert os.getcwd() == str(tmp_path)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_is_of_the_format_and_holds_no_results(notebook: str) -> None:
    """What a notebook holds of a run is out of date after the next change."""
    held = json.loads((ROOT / notebook).read_text())
    assert (held["nbformat"], held["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in held["cells"]}) == len(held["cells"]) > 4
    assert held["cells"][0]["cell_type"] == "markdown"
    for cell in held["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None)


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) > 1
