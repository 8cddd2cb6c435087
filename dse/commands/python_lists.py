"""Tables of what users can name: chips, models, mappings, stacks, knobs, metrics and studies."""

import pandas as pd

from dse.reference.catalogue import list_entries


def list_chips(word: str = "") -> pd.DataFrame:
    """Chips that ``chip=NAME`` takes: name, one line and facts each.

    Args:
        word: part of a name, line or fact; empty string for all.

    Raises:
        DesignError: no chip has the word.
    """
    return _entry_table("chips", word)


def list_models(word: str = "") -> pd.DataFrame:
    """Models that ``model=NAME`` takes; `word` as of `list_chips`."""
    return _entry_table("models", word)


def list_mappings(word: str = "") -> pd.DataFrame:
    """Mappings that ``mapping=NAME`` takes; `word` as of `list_chips`."""
    return _entry_table("mappings", word)


def list_stacks(word: str = "") -> pd.DataFrame:
    """Software stacks that ``stack=NAME`` takes; `word` as of `list_chips`."""
    return _entry_table("stacks", word)


def list_knobs(word: str = "") -> pd.DataFrame:
    """Settings of chips and mappings by address, with unit, values and default; `word` as of `list_chips`."""
    return _entry_table("knobs", word)


def list_metrics(word: str = "") -> pd.DataFrame:
    """Metrics that an answer states, with definition and unit; `word` as of `list_chips`."""
    return _entry_table("metrics", word)


def list_studies(word: str = "") -> pd.DataFrame:
    """Studies that ship or are in ./studies, with their questions; `word` as of `list_chips`."""
    return _entry_table("studies", word)


def _entry_table(kind: str, word: str) -> pd.DataFrame:
    """Entries of a kind as a table: name, line, and a column a fact with its unit in ``attrs["units"]``."""
    entries = list_entries(kind, word)
    rows = [
        {"name": entry.name, "line": entry.line, **{name: fact.value for name, fact in entry.facts.items()}}
        for entry in entries
    ]
    table = pd.DataFrame(rows)
    table.attrs["units"] = {name: fact.unit for entry in entries for name, fact in entry.facts.items() if fact.unit}
    return table
