"""Every recipe of `docs/architecture.md` works on a copy of the tree, and is needed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.marks import slow_if
from tests.recipes import LAYOUT, MEMORY_KIND, RECIPES, evaluated, tree


@pytest.fixture(scope="module")
def clean() -> Iterator[Path]:
    with tree() as folder:
        yield folder


@slow_if(lambda name: name.startswith(("a kernel", "a dataflow", "a part of a chip")))
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


def test_limits_of_another_layout_name_what_its_memory_holds() -> None:
    recipe = RECIPES[LAYOUT]
    with tree(recipe) as folder:
        full = evaluated((*recipe.asked[:-1], "+mapping.decode.reserved_memory=0.9", "workload.batch=[4096]"), folder)
    assert "other software" in json.loads(full.stdout)["infeasible"]


def test_limits_and_refusals_name_another_kind_of_main_memory() -> None:
    recipe = RECIPES[MEMORY_KIND]
    beside = tuple(word for word in recipe.asked if word != "~chip.hbm")
    with tree(recipe) as folder:
        small = evaluated((*recipe.asked, "chip.lpddr.capacity=10 GB"), folder)
        both = evaluated(beside, folder)
    assert "GB of chip.lpddr.capacity, has 10 GB" in json.loads(small.stdout)["infeasible"]
    assert both.stderr.startswith("dse: chip.lpddr: is in place of chip.hbm, which is set too; remove one: ~chip.hbm")


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_touches_few_places(name: str) -> None:
    recipe = RECIPES[name]
    assert len({*recipe.files, *recipe.lines}) <= 3
