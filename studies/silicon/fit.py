"""Fit five areas and one energy of N7 on published chips, with each chip left out in turn.

    python -m dse.studies.silicon.fit [--write]

The area of a die is linear in a node's areas, and its power at full load in the energy of a multiply-add. Other nodes
are N7 by the factors in their files, so that one set of constants holds for all dies. The fit uses the rows of
`published.csv` whose role is calibration, each design once. With --write, the nodes' files get the new values.
"""

import csv
import re
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.config.compose import compose, find_study_folder
from dse.config.question import build_question
from dse.evaluators.silicon import area, energy
from dse.space.array_math import Array
from dse.space.chip import Chip
from dse.space.fields import replace_leaves
from dse.space.technology import ProcessNode
from dse.space.units import parse_quantity

HERE = Path(__file__).resolve().parent
NODES = HERE.parents[1] / "conf" / "technology"


class Prior(NamedTuple):
    """Prior value of an N7 constant in SI, and a constant that scales alike on other nodes."""

    value: float
    like: str
    why: str


AREAS = {
    "multiplier": Prior(600e-6, "lane", "placed by itself 0.1e-3 mm2; the arrays of a TPUv4i 1.5e-3 with what feeds them"),
    "simt_lane": Prior(
        25e-3, "lane", "what a GA100's multiprocessor of 3.75 mm2 leaves is 39e-3 a lane, caches and texture units in it"
    ),
    "issue": Prior(50e-3, "lane", "a scalar core with its caches"),
    "sram": Prior(0.55e-6, "register", "scratchpads of 0.45 mm2/MB, and spare rows"),
    "cache": Prior(1.15e-6, "register", "local memory, and as much again for tags, checks and queues"),
}
ENERGY = "mac"
LIKE = {name: prior.like for name, prior in AREAS.items()} | {ENERGY: "element"}
"""Fitted constants that give the scaling to other nodes of an unfitted constant."""

PULL = 0.25
"""Weight of a constant's relative distance from its prior, beside that of the relative errors of the dies. Dies left out are
off least, by the mean of squares, from 0.2 to 0.25: 13.4 %; by 17 % with 0.05, 14.5 % with 0.6."""

PICOJOULE, MOST = 1e-12, 20.0
"""What energies are looked for in [J], and how many at most."""


class FitRow(NamedTuple):
    """A published area or power of a chip, in SI."""

    name: str
    chip: Chip
    value: float


class RowResidual(NamedTuple):
    """Relative errors of a row: fitted on all rows, and on all others."""

    name: str
    value: float
    fitted: float
    left_out: float


def rows(metric: str, role: str = "calibration") -> list[FitRow]:
    """Rows of `published.csv` of one metric and role."""
    with (HERE / "published.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == metric and row["role"] == role]
    unit = {"die_mm2": "mm2", "tdp": "W"}[metric]
    return [
        FitRow(row["where"], chip_of(row["overrides"]), parse_quantity(f"{row['value']} {row['unit']}", unit)) for row in rows
    ]


@cache
def chip_of(overrides: str) -> Chip:
    """Chip record of some overrides."""
    config = compose(overrides.split())
    return build_question(config, find_study_folder(config)).base.chip


def factor(tech: ProcessNode, like: str) -> float:
    """Ratio of a process node's constant to N7's."""
    return float(getattr(tech, like) / getattr(chip_of("chip=a100").technology, like))


def of_die(chip: Chip) -> tuple[float, Array]:
    """Die area without fitted constants, and area per unit of each N7 constant, shape (constants,). [mm2]"""

    def at(**constants: float) -> float:
        values = dict.fromkeys(AREAS, 0.0) | constants
        return float(area.die_area(replace_leaves(chip, {f"technology.{name}": value for name, value in values.items()})))

    bare = at()
    return bare, np.array([at(**{name: factor(chip.technology, prior.like)}) - bare for name, prior in AREAS.items()])


def fit_areas(dies: list[tuple[float, float, Array]]) -> Array:
    """N7 constants by non-negative least squares of relative errors with priors, shape (constants,).

    Args:
        dies: published area, that without what is fitted, and per unit of each constant. [mm2]
    """
    from scipy.optimize import nnls

    prior = np.array([prior.value for prior in AREAS.values()])
    relative = np.array([per * prior / published for published, _, per in dies])
    short = np.array([1 - bare / published for published, bare, _ in dies])
    pulled = np.vstack([relative, PULL * np.eye(len(prior))])
    return prior * nnls(pulled, np.concatenate([short, np.full(len(prior), PULL)]))[0]


def areas() -> tuple[dict[str, float], list[RowResidual]]:
    """Fitted areas of N7 in SI by name, and the errors of each die."""
    found_rows = rows("die_mm2")
    dies = [(row.value, *of_die(row.chip)) for row in found_rows]
    every = fit_areas(dies)
    left = []
    for at, (row, (published, bare, per)) in enumerate(zip(found_rows, dies, strict=True)):
        others = fit_areas(dies[:at] + dies[at + 1 :])
        left.append(
            RowResidual(row.name, published, (bare + per @ every) / published - 1, (bare + per @ others) / published - 1)
        )
    return dict(zip(AREAS, map(float, every), strict=True)), left


def with_constants(chip: Chip, constants: dict[str, float]) -> Chip:
    """A chip whose process node has the given N7 constants, scaled by the node's factors."""
    values = {f"technology.{name}": value * factor(chip.technology, LIKE[name]) for name, value in constants.items()}
    return replace_leaves(chip, values)


def energies(constants: dict[str, float]) -> tuple[float, list[RowResidual]]:
    """Fitted energy of a multiply-add at N7 [J/op] for given areas, and errors of rated powers."""
    found_rows = rows("tdp")
    bare, per = np.array([of_power(row.chip, constants) / row.value for row in found_rows]).T
    every = fit_energy(bare, per)
    left = []
    for at, row in enumerate(found_rows):
        kept = np.arange(len(found_rows)) != at
        errors = [float(bare[at] + per[at] * value - 1) for value in (every, fit_energy(bare[kept], per[kept]))]
        left.append(RowResidual(row.name, row.value, *errors))
    return every, left


def of_power(chip: Chip, constants: dict[str, float]) -> Array:
    """Full-load power without multiply-adds [W], and per unit of their N7 energy [op/s]; shape (2,)."""
    bare, raised = (
        float(energy.peak_design_power(with_constants(chip, constants | {ENERGY: value}))) for value in (0.0, PICOJOULE)
    )
    return np.array([bare, (raised - bare) / PICOJOULE])


def fit_energy(bare: Array, per: Array) -> float:
    """Energy of a multiply-add by least squares of logarithmic power ratios. [J/op]

    Args:
        bare, per: power over the rated one without multiply-adds, and per unit of their energy; shape (chips,).
    """
    from scipy.optimize import minimize_scalar

    def off(picojoules: float) -> float:
        return float(np.sum(np.log(bare + per * picojoules * PICOJOULE) ** 2))

    return float(minimize_scalar(off, bounds=(0.0, MOST), method="bounded").x) * PICOJOULE


def write(constants: dict[str, float]) -> None:
    """Write N7's constants, and those of other nodes by their factors, into the nodes' files."""
    units = {spec.name: spec.metadata["unit"] for spec in fields(ProcessNode)}
    for path in sorted(NODES.glob("*.yaml")):
        tech = chip_of(f"chip=a100 technology@chip.technology={path.stem}").technology
        lines = path.read_text().splitlines()
        for at, line in enumerate(lines):
            setting_match = re.match(r'(\w+): \{value: "\S+ (\S+)"', line)
            if setting_match is not None and setting_match[1] in constants:
                number = (
                    constants[setting_match[1]]
                    * factor(tech, LIKE[setting_match[1]])
                    / parse_quantity(f"1 {setting_match[2]}", units[setting_match[1]])
                )
                lines[at] = f'{setting_match[1]}: {{value: "{number:.4g} {setting_match[2]}"' + line[setting_match.end() :]
        path.write_text("\n".join(lines) + "\n")


def main(arguments: list[str]) -> int:
    """Print constants and errors; with --write, write the constants."""
    constants, dies = areas()
    mac, powers = energies(constants)
    for name, value in constants.items():
        print(f"{name:12} {value:.4g}")
    print(f"{ENERGY:12} {mac:.4g}")
    for left in (dies, powers):
        for row in left:
            print(f"{row.name:12} {row.value:8.5g} {row.fitted:+7.1%} {row.left_out:+7.1%}")
        off = np.abs([row.left_out for row in left])
        print(f"left out: median {np.median(off):.1%}, worst {off.max():.1%}")
    if "--write" in arguments:
        write(constants | {ENERGY: mac})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
