"""What a closed form never reads and readers that play do: refused where somebody says it and nothing is played."""

from collections.abc import Mapping, Sequence
from typing import Any

from dse.config.build import Question
from dse.config.idle_chip import OF_CACHES
from dse.config.said import named, typed
from dse.space.errors import DesignError
from dse.space.knobs import Knob
from dse.space.software import software_of
from dse.space.workload import Stream, Traffic

FORMULAS = ("steady", "closed")
"""Fidelities that play nothing of a memory or of a network."""

BANKS = "chip.hbm.banks."
PART = "@chip.hbm.banks"
"""How a whole memory is put there."""

PLAYED = (
    *("stacks", "channels", "pseudo", "refresh", "controller.queue", "controller.path"),
    *(f"timing.{name}" for name in ("cwl", "rcd_write", "rrd_l", "wtr_s", "rtw", "wr", "refi", "rfc", "rfc_bank")),
)
"""Leaves of banks behind tiles that formulas of blocks (`machine/laid.py`, `machine/scattered.py`) do not have; of a die they
have none."""

PACKETS = ("period", "packets")
"""Of packets that meet others."""


def refuse_unplayed(question: Question, config: Mapping[str, Any], knobs: Sequence[Knob] = ()) -> None:
    """Raises for what is said, or moved by a knob, and only read where something is played.

    Args:
        question: with the cases.
        config: with the overrides that were typed, and the fidelity.
        knobs: of a search that looks at no design once more by another fidelity.

    Raises:
        DesignError: the first of them, by its address, and the fidelities that read it.
    """
    if config["fidelity"] not in FORMULAS:
        return
    case, words = question.workload.cases[0], config.get("overrides", ())
    if isinstance(case, Traffic):
        for name in PACKETS:
            if any(word.lstrip("+").startswith(f"workload.{name}=") for word in words):
                raise DesignError(
                    f"workload.{name}: nothing reads it, for by fidelity={config['fidelity']} packets meet no others; say "
                    "fidelity=cycles, or leave it out"
                )
    if isinstance(case, Stream):
        return
    on_die = software_of(question.base.mapping) in OF_CACHES
    if on_die and any(word.partition("=")[0].endswith(PART) for word in words):
        raise DesignError(_said(BANKS.rstrip("."), config["fidelity"]))
    moved = [("space.", knob.address) for knob in knobs]
    for prefix, address in (*moved, *(("", address) for address, _ in typed(words))):
        leaves = named(question.base, address)
        if leaves and all(leaf.startswith(BANKS) and (on_die or leaf.removeprefix(BANKS) in PLAYED) for leaf in leaves):
            raise DesignError(_said(f"{prefix}{address}", config["fidelity"]))


def _said(address: str, fidelity: str) -> str:
    return f"{address}: nothing reads it, for fidelity={fidelity} plays no banks; say fidelity=events, or leave it out"
