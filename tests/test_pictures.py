"""The pictures of the documents are those that docs/pictures.py draws of the present presets."""

import importlib.util
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
assert spec
assert spec.loader
pictures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pictures)


@pytest.mark.parametrize("name", sorted(set(pictures.PICTURES) - {"front_read"}))
def test_a_picture_is_drawn_of_the_present_presets(name: str) -> None:
    assert (DOCS / f"assets/{name}.svg").read_text() == pictures.PICTURES[name]().svg(), "run python docs/pictures.py"


@pytest.mark.parametrize("path", sorted((DOCS / "assets").glob("*.svg")), ids=lambda path: path.stem)
def test_the_text_of_a_picture_stays_in_it(path: Path) -> None:
    """Half an em a letter, at the size of its class: no line leaves the card to the right or left."""
    for text in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text"):
        look = text.get("class", "")
        size = 10 if "tiny" in look else 11.5 if "small" in look else 13
        width = 0.5 * size * len(text.text or "")
        left = float(text.get("x", 0)) - width * ("middle" in look) / 2 - width * ("end" in look)
        assert 0 <= left <= left + width <= pictures.WIDTH, text.text
