"""Work of iterations and KV transfers that serve a load, and its metrics, alike on every layout."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dse.evaluators.accounting.power import power_metrics
from dse.evaluators.accounting.serving_runs.kv_transfers import TransferWork
from dse.evaluators.accounting.usage import MAIN_MEMORY_METRICS, PeakRates, link_utilisation, usage_of_time
from dse.space.array_math import Array
from dse.space.chip import Chip
from dse.space.workload import ServingLoad


class ServedWork(NamedTuple):
    """Work of iterations on all chips.

    Attributes:
        flop: useful operations of products; those in other formats than `PeakRates.flops` is of count by the time that they
            take at their own peak. [FLOP]
        memory_bytes: between main memory and dies or tiles; NaN without main memory. [B]
        hop_bytes: bytes times links of the NoC that they cross. [B]
        energy: gives the dynamic energy, computed on demand. [J]
    """

    flop: Any
    memory_bytes: Any
    hop_bytes: Any
    energy: Callable[[], Any]


SPENT_COLUMNS = ("seconds", "energy", "memory bytes", "hop bytes", "operations")
"""Costs of parts of an iteration, in units s, J, B, B x hop and FLOP."""


def work_of_costs(spent: Array) -> ServedWork:
    """Work by costs in the order of `SPENT_COLUMNS` without seconds."""
    joules, memory_bytes, hop_bytes, operations = spent
    return ServedWork(operations, memory_bytes, hop_bytes, lambda: joules)


def usage_of_work(
    work: ServedWork, moved: TransferWork, rates: PeakRates, seconds: Any, *, has_memory: bool = True
) -> dict[str, Any]:
    """Utilisation of all engines, memory channels and links in some time.

    Args:
        work, moved: of iterations, and of transfers beside them.
        rates: peak rates of all chips together.
        seconds: in which these are done. [s]
        has_memory: whether served loads use main memory; without, there are no metrics of it.
    """
    values = usage_of_time(work.flop, work.memory_bytes + moved.memory_bytes, seconds, rates.flops, rates.memory)
    if not has_memory:
        values = {name: value for name, value in values.items() if name not in MAIN_MEMORY_METRICS}
    if rates.links is not None:
        values["noc_utilisation"] = link_utilisation(work.hop_bytes + moved.hop_bytes, rates.links, seconds)
    return values


def power_of_work(
    work: ServedWork,
    moved: TransferWork,
    seconds: Any,
    load: ServingLoad,
    kinds: Sequence[tuple[Chip, Any]],
    peak: Callable[[], Any],
    *,
    decode_cores: Any = 0,
) -> dict[str, Any]:
    """Energy, power and price metrics, computed when they are read.

    Args:
        work, moved: of iterations, and of transfers beside them.
        seconds: in which these are done. [s]
        load: whose output tokens they are.
        kinds: each kind of chip that serves, and how many there are of it.
        peak: gives the peak power on demand. [W]
        decode_cores: tiles that only decode.
    """
    (chip, chips), *others = kinds
    return power_metrics(
        chip,
        lambda: [(work.energy() + moved.energy, seconds)],
        float(load.requests.output.sum()),
        chips=chips,
        decode_cores=decode_cores,
        peak=peak,
        others=others,
    )
