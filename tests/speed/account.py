"""What the account of silicon adds to a screen: limits of area, supply, heat and edges, and metrics of energy, power and money.

    python -m tests.speed.account [DESIGNS]

Each line is a screen, stored, whose constraints, which nothing breaks, ask for every metric of silicon; the account's CPU time
is that within its functions, over that of all the rest of the same screen.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from dse.config.compose import compose
from dse.evaluators.accounting import power
from dse.evaluators.silicon import chip_batches as whole
from dse.evaluators.silicon import manufacturing_limits as silicon
from dse.execution.screen import run_screen
from dse.execution.study import build_study
from tests.speed.chips import ASKED, TILES

SCREENS = {
    "dies with a cache": ("a100,ascend910b,npu_dse", ("mapping.both.tp", "chip.hbm", "chip.clock")),
    "pipelines of cores": ("npu64,npu256", ("mapping.both", "chip.hbm.capacity", "chip.clock")),
    "wafers": ("wse2,wse3", ("mapping.prefill", "mapping.decode", "chip.clock", "chip.core")),
    "six chips": ("a100,ascend910b,npu_dse,npu64,npu256,wse2", ("mapping", "chip")),
    "six chips, one of them flat": ("a100,ascend910b,npu_dse,npu64,wse2,tile_gh200", ("mapping", "chip")),
}
"""Chips of the screens, and those of the knobs of `tests.speed.chips` that one of them has, by the start of their address."""

SILICON = (
    "+objectives.throughput_per_system_mm2=max",
    "+objectives.tpot=min",
    "+constraints.die_mm2='<= 1e12 mm2'",
    "+constraints.energy_per_token='<= 1e12 J/token'",
    "+constraints.peak_power='<= 1e15 W'",
    "+constraints.system_price='<= 1e15 USD'",
    "+constraints.price_per_mtoken='<= 1e15 USD'",
)
"""What a study of silicon asks for."""


class Inside:
    """CPU time spent in some functions of three modules, by name. [s]"""

    def __init__(self) -> None:
        self.seconds = {"limits": 0.0, "metrics": 0.0, "putting chips together": 0.0}

    def counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time counts under a name."""

        def work(*given: Any, **options: Any) -> Any:
            start = time.process_time()
            work = function(*given, **options)
            self.seconds[name] += time.process_time() - start
            if isinstance(work, dict):  # metrics that are worked out later
                return {key: self.counted(name, value) if callable(value) else value for key, value in work.items()}
            return work

        return work


def added(chips: str, knobs: tuple[str, ...], designs: int) -> tuple[float, dict[str, float]]:
    """CPU time of a screen without that of the account, and of the account by part. [s]"""
    words = [word for word in (*ASKED, *(TILES if "tile" in chips else ())) if _said(word, knobs)]
    for _ in range(2):  # the first one imports
        inside = Inside()
        with (
            mock.patch.object(whole, "chips_by_batch", inside.counted("putting chips together", whole.chips_by_batch)),
            mock.patch.object(silicon, "exceeded_limits", inside.counted("limits", silicon.exceeded_limits)),
            mock.patch.object(power, "_of_phases", inside.counted("metrics", power._of_phases)),
        ):
            seconds = _screened(designs, f"chips=[{chips}]", *words, *SILICON)
    return seconds - sum(inside.seconds.values()), inside.seconds


def _said(word: str, knobs: tuple[str, ...]) -> bool:
    """Whether a word is of the workload, or a knob of those."""
    return not word.startswith("+") or any(word.startswith(f"+space.{knob}") for knob in knobs)


def _screened(designs: int, *words: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        study = build_study(compose([*words, f"screen.limit={designs}", f"run_dir={folder}"]), Path())
        start = time.process_time()
        run_screen(study, lambda done, total, size: None)
        return time.process_time() - start


def measured(designs: int = 1 << 18) -> list[tuple[str, str, str]]:
    """What the account takes of each screen, over what all else does, and what of that its limits and its metrics are."""
    lines = []
    for name, (chips, knobs) in SCREENS.items():
        rest, shares_of_part = added(chips, knobs, designs >> 2 if "tile" in chips else designs)
        shares = ", ".join(f"{part} {seconds / rest:.1%}" for part, seconds in shares_of_part.items())
        lines.append(
            (
                f"account of silicon, screen of {name}",
                f"+{sum(shares_of_part.values()) / rest:.1%} ({shares})",
                f"{rest:.2f} s CPU",
            )
        )
    return lines


if __name__ == "__main__":
    for line in measured(int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 18):
        print(" | ".join(line))
