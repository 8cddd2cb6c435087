"""Every recipe of `docs/architecture.md` works on a copy of the tree, and is needed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recipes import RECIPES, evaluated, tree


@pytest.fixture(scope="module")
def clean() -> Iterator[Path]:
    with tree() as folder:
        yield folder


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_needed_and_does(name: str, clean: Path) -> None:
    recipe = RECIPES[name]
    before = evaluated(recipe.asked, clean)
    assert before.returncode == 2
    assert recipe.without in before.stderr
    with tree(recipe) as folder:
        after = evaluated(recipe.asked, folder)
    assert after.returncode == 0, after.stderr
    assert json.loads(after.stdout)["metrics"]["latency"]["value"] > 0


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_touches_few_places(name: str) -> None:
    recipe = RECIPES[name]
    assert len({*recipe.files, *recipe.lines}) <= 3
