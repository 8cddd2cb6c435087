"""The one place of lists: chips, models, mappings, knobs, metrics and all else that users name, each with a line and its facts.

Nothing is written here twice: entries are made of the records and presets that hold them.
"""

from collections.abc import Mapping
from difflib import get_close_matches

from dse.reference.entries import Entry, Fact, Kind
from dse.reference.presets import preset_entries
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


def _studies() -> list[Entry]:
    from dse.config.overrides import find_study_paths
    from dse.config.yaml_files import read_document

    return [Entry(name, str(read_document(path).get("question") or ""), {}) for name, path in find_study_paths().items()]


def _models() -> list[Entry]:
    from dse.reference.presets import preset_names, preset_values

    return [Entry(name, str(preset_values("model", name)["name"]), {}) for name in preset_names("model")]


def _knobs() -> list[Entry]:
    from dse.reference.settings import declared_settings, default_text, settings_by_address, values_text
    from dse.space.chip import Chip
    from dse.space.mapping import Mapping as Software

    settings = [*declared_settings(Chip, "chip"), *declared_settings(Software, "mapping")]
    return [
        Entry(
            address,
            "; or ".join(dict.fromkeys(str(setting.spec.metadata["doc"]) for setting in several)),
            {
                "unit": Fact(str(several[0].spec.metadata["unit"])),
                "values": Fact("; or ".join(dict.fromkeys(values_text(setting.spec) for setting in several))),
                "default": Fact("; or ".join(dict.fromkeys(default_text(setting.default) for setting in several))),
            },
        )
        for address, several in settings_by_address(settings).items()
    ]


def _metrics() -> list[Entry]:
    from dse.evaluators.accounting.metrics import METRICS, SHIPPED

    return [
        Entry(name, METRICS[name].definition, {"unit": Fact(METRICS[name].unit), "better": Fact(METRICS[name].better)})
        for name in SHIPPED
    ]


KINDS: Mapping[str, Kind] = {
    "chips": Kind("accelerators, real and hypothetical", "chip=NAME", lambda: preset_entries("chip")),
    "models": Kind("language models", "model=NAME", _models),
    "mappings": Kind("how software runs on a chip", "mapping=NAME", lambda: preset_entries("mapping")),
    "stacks": Kind("software stacks of shared-cache dies", "stack=NAME", lambda: preset_entries("stack")),
    "engines": Kind(
        "inference engines with their memory and limits", "inference_engine=NAME", lambda: preset_entries("inference_engine")
    ),
    "workloads": Kind("what is asked of a design", "workload=NAME", lambda: preset_entries("workload")),
    "knobs": Kind(
        "settings of a chip and a mapping, which a study may search", "NAME=VALUE", _knobs, ("unit", "values", "default")
    ),
    "metrics": Kind("what an answer states", "", _metrics, ("unit", "better")),
    "studies": Kind("studies that ship or are in ./studies", "study=NAME", _studies),
    "spaces": Kind("sets of knobs to search", "space=NAME", lambda: preset_entries("space")),
    "parts": Kind("parts that a chip may have besides", "", lambda: preset_entries("part")),
    "samplers": Kind("searches of a study", "search=NAME", lambda: preset_entries("search")),
}
"""Kinds of what users name, by the word that `dse list` takes."""
