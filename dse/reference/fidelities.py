"""Fidelities: what each computes, which machines and workloads have it, and what one evaluation costs."""

from dse.reference.entries import Entry, EntryFact
from dse.reference.measure import Measurement, read_measurements

LINES = {
    "steady_state": "closed-form model of serving at a constant arrival rate, without simulation",
    "analytical": "formulas for kernels, many designs at once; serving is simulated over their iteration times",
    "events": "event-driven simulation: messages, instructions and memory accesses take links, engines and banks",
    "cycles": "cycle-level simulation: flits pass router pipelines cycle by cycle",
}
"""What each fidelity computes, from the fastest to the nearest to the machine."""


def fidelity_entries() -> list[Entry]:
    """Entries of all fidelities."""
    return [_fidelity_entry(name) for name in LINES]


def _fidelity_entry(name: str) -> Entry:
    rows = [row for row in read_measurements() if row.fidelity == name]
    workloads = dict.fromkeys(row.workload for row in rows)
    facts = {
        "CPU time": EntryFact(cost_text(rows)),
        "workloads": EntryFact(", ".join(workloads) or None),
        "machines": EntryFact(", ".join(dict.fromkeys(row.machine.removeprefix("a ") for row in rows)) or None),
    }
    return Entry(name, LINES[name], facts)


def cost_text(rows: list[Measurement]) -> str:
    """Least and most CPU time of some evaluations."""
    seconds = [row.seconds for row in rows if row.seconds is not None]
    if not seconds:
        return "-"
    low, high = (_time_text(value) for value in (min(seconds), max(seconds)))
    return low if low == high else f"{low} to {high}"


def _time_text(seconds: float) -> str:
    """Seconds with two digits: in milliseconds below a tenth."""
    return f"{seconds * 1e3:.2g} ms" if seconds < 0.095 else f"{seconds:.2g} s"
