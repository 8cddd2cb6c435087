"""Energy of models by hand: each constant alone says how much is done, which is what shapes of a model multiply out to."""

from functools import cache

import pytest

from dse.evaluators import evaluate
from dse.evaluators.silicon import supply
from dse.space.design import Design, stacked
from dse.space.fields import replaced
from dse.space.workload import Workload
from tests.samples import asked

BY_CLOCK = ("mac", "element", "access", "shared", "hop")
"""Energies of what is on a die, at the supply that its clock needs; those of links and memory are what they are."""

LINKS = ("package_byte", "module_byte", "board_byte")


LITTLE = 1e-18
"""With which no chip gets hot. [J], [W]"""


def counted(design: Design, workload: Workload) -> dict[str, float]:
    """What is done, by constant: energy over that constant where all others are nothing."""
    ones = [f"chip.technology.{name}" for name in (*BY_CLOCK, *LINKS, "static")]
    ones += [] if design.chip.dram is None else ["chip.dram.byte", "chip.dram.idle"]
    none = dict.fromkeys(ones, 0.0)
    found = evaluate(stacked([replaced(design, none | {one: LITTLE}) for one in ones]), workload).columns["energy"]
    counts = {one.rpartition(".")[2]: float(value) / LITTLE for one, value in zip(ones, found, strict=True)}
    scale = float(supply.squared(design.chip))
    return counts | {name: counts[name] / scale for name in (*BY_CLOCK, "static")}


@cache
def done(*words: str) -> dict[str, float]:
    """Of what some overrides ask."""
    of = asked(*words)
    return counted(of.base, of.workload)


def formats(word: str) -> tuple[str, ...]:
    return tuple(f"mapping.precision.{of}={word}" for of in ("weights", "activations", "kv"))


SMALL = ("workload.batch=[1]", "workload.sequence=[256]")


@pytest.mark.parametrize(
    "words",
    [
        ("chip=h100", "model=qwen3_1b7", *SMALL),
        ("chip=npu64", "model=qwen3_1b7", *SMALL),
        ("chip=tile_gh200", "model=qwen3_1b7", *SMALL),
        (
            "chip=npu64",
            "model=qwen3_1b7",
            "workload=serving",
            "workload.requests=20",
            "workload.prompt=256",
            "workload.output=16",
        ),
    ],
    ids=lambda words: f"{words[0].removeprefix('chip=')}-{len(words)}",
)
def test_a_multiply_add_of_half_the_bits_takes_half_the_energy(words: tuple[str, ...]) -> None:
    wide, narrow = (done(*words, *formats(word))["mac"] for word in ("bf16", "int8"))
    # slices and so padding may be others where values are smaller
    assert narrow == pytest.approx(wide / 2, rel=0.02)
