"""The one place of lists: chips, models, mappings, knobs, metrics and all else that users name, each with a line and its facts.

Nothing is written here twice: entries are made of the records and presets that hold them.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module

from dse.reference.entries import Entry, Fact, Kind
from dse.reference.presets import preset_entry, preset_names
from dse.space.errors import DesignError, suggest_nearest

NEAREST, LIKENESS = 3, 0.6
"""Names that a hint has at most, and how near they are at least."""


def list_entries(kind: str, word: str = "") -> list[Entry]:
    """Entries of a kind whose name, line or facts have a word in them; one that has it as its name stands alone.

    Raises:
        DesignError: there is no such kind, or no entry with the word.
    """
    if kind not in KINDS:
        raise DesignError(f"list: no kind {kind!r}; {suggest_nearest(kind, KINDS)}")
    entries = list(KINDS[kind].entries())
    named = [entry for entry in entries if entry.name == word]
    chosen = named or [entry for entry in entries if entry.has_word(word)]
    if not chosen:
        raise DesignError(f"list {kind}: no entry has {word!r}; {find_nearest(kind, word)}")
    return chosen


def find_nearest(kind: str, word: str) -> str:
    """Hint for a name that does not exist: the nearest names of a kind, and the command that lists all.

    >>> find_nearest("chips", "h10")
    "did you mean 'h100', 'h20', 'h100_ep'? valid: dse list chips"
    """
    last = {entry.name.rpartition(".")[2]: entry.name for entry in KINDS[kind].entries()}
    names = {entry.name.lower(): entry.name for entry in KINDS[kind].entries()}
    close = [names[name] for name in get_close_matches(word.lower(), names, n=NEAREST, cutoff=LIKENESS)]
    close = close or [last[name] for name in get_close_matches(word, last, n=NEAREST, cutoff=LIKENESS)]
    hint = f"did you mean {', '.join(map(repr, close))}? " if close else ""
    return f"{hint}valid: dse list {kind}"


def _presets(group: str) -> Callable[[], list[Entry]]:
    """What lists the presets of a group, by the heads of their files."""
    return lambda: [preset_entry(group, name) for name in preset_names(group)]


def _entries(place: str) -> Callable[[], list[Entry]]:
    """What lists entries by a function, as module:function below this package; the module is imported when it is asked."""
    module, _, function = place.partition(":")
    return lambda: list(getattr(import_module(f"dse.reference.{module}"), function)())


def _metrics() -> list[Entry]:
    from dse.evaluators.accounting.metrics import METRICS
    from dse.reference.measure import metrics_by_workload

    workloads = metrics_by_workload()
    return [
        Entry(
            name,
            METRICS[name].definition,
            {
                "unit": Fact(METRICS[name].unit),
                "better": Fact("more" if METRICS[name].better == "max" else "less"),
                "workloads": Fact(", ".join(workloads.get(name, ())) or None),
                "computed from": Fact(", ".join(METRICS[name].needs) or None),
                "over cases": Fact(METRICS[name].over),
                "values": Fact(", ".join(f"{value} {word}" for value, word in enumerate(METRICS[name].words)) or None),
            },
        )
        for name in METRICS.names()
    ]


KINDS: Mapping[str, Kind] = {
    "chips": Kind(
        "accelerators that ship: real ones, and those of papers",
        "chip=NAME",
        _entries("chips:chip_entries"),
        ("node", "peak", "memory", "bandwidth", "measured"),
        group="kind",
        columns_first=True,
    ),
    "models": Kind(
        "language models",
        "model=NAME",
        _entries("models:model_entries"),
        ("parameters", "active", "KV/token", "formats"),
        columns_first=True,
    ),
    "mappings": Kind(
        "how software runs on a chip", "mapping=NAME", _entries("software:mapping_entries"), ("workload",), group="machine"
    ),
    "stacks": Kind(
        "libraries on shared-cache dies, and what they reach of its peaks",
        "stack=NAME",
        _entries("software:stack_entries"),
        ("rows", "error", "measured on"),
    ),
    "engines": Kind(
        "inference engines: memory for KV caches, formats and limits",
        "inference_engine=NAME",
        _entries("software:engine_entries"),
        ("version", "largest batch", "token budget"),
    ),
    "workloads": Kind("what is asked of a design", "workload=NAME", _entries("questions:workload_entries")),
    "knobs": Kind(
        "settings of a chip and a mapping, which a study may search",
        "NAME=VALUE",
        _entries("knobs:knob_entries"),
        ("unit", "default", "values"),
    ),
    "settings": Kind(
        "settings of workloads, models, searches and reports",
        "NAME=VALUE",
        _entries("knobs:other_setting_entries"),
        ("unit", "default", "values"),
    ),
    "options": Kind("words that settings may have", "", _entries("option_meanings:option_entries")),
    "fidelities": Kind("how exactly a design is evaluated", "fidelity=NAME", _entries("fidelities:fidelity_entries")),
    "metrics": Kind("figures that an answer states", "", _metrics, ("unit", "better")),
    "studies": Kind("studies that ship or are in ./studies", "study=NAME", _entries("questions:study_entries")),
    "spaces": Kind("sets of knobs to search", "space=NAME", _entries("questions:space_entries"), ("knobs",)),
    "parts": Kind("parts that a chip may have besides its own", "+part@ADDRESS=NAME", _presets("part")),
    "links": Kind("links between the dies of a chip", "+die_link@chip.die_link=NAME", _presets("die_link")),
    "drams": Kind("main memory devices as they are bought", "dram@chip.dram=NAME", _presets("dram")),
    "memories": Kind("memories with their banks and timing", "memory@chip.hbm.banks=NAME", _presets("memory")),
    "nodes": Kind("process nodes: areas, energies and prices", "technology@chip.technology=NAME", _presets("technology")),
    "economics": Kind("prices of making and running a chip", "economics@chip.economics=NAME", _presets("economics")),
    "kernels": Kind(
        "library kernels of software stacks, with their measured rows",
        "",
        _entries("software:kernel_entries"),
        ("rows", "measured on"),
    ),
    "areas": Kind("area models of papers", "areas@chip.areas=NAME", _presets("areas")),
    "days": Kind("rates of a day for dse fleet", "--day NAME", _entries("questions:day_entries")),
    "samplers": Kind("what searches a study", "search=NAME", _presets("search")),
    "verifications": Kind("what is evaluated again at a higher fidelity", "verify=NAME", _presets("verify")),
    "workers": Kind("processes that evaluate designs", "workers=NAME", _presets("workers")),
}
"""Kinds of what users name, by the word that `dse list` takes."""
