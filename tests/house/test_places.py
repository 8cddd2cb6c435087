"""The architecture page names files and functions that exist."""

import ast
import re

import pytest

from tests.house.sources import ROOT

PLACES = re.findall(
    r"^\| .+ \| `([\w/]+\.py)`(?:, `(\w+)`)? \|$", (ROOT / "docs/architecture/places.md").read_text(), re.MULTILINE
)


def test_the_page_has_places() -> None:
    assert len(PLACES) > 10


@pytest.mark.parametrize(("file", "function"), PLACES)
def test_a_place_exists(file: str, function: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    assert not function or function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
