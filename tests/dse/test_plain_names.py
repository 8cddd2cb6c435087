"""Plain names of settings: each its own, without an address's punctuation, and none that a metric has."""

from collections import defaultdict

from dse.evaluators import METRICS
from dse.reference.knobs import knob_entries
from dse.terminal.plain_names import plain_name, setting_name

SAME_SETTING = (
    {"mapping.prefill.prefetch_share", "mapping.prefill.prefetch.share"},
    {"mapping.decode.prefetch_share", "mapping.decode.prefetch.share"},
)
"""Addresses of one thing: the share that is fetched ahead, on devices and on tiles."""


def test_plain_names_tell_settings_apart_from_each_other_and_from_metrics() -> None:
    addresses = defaultdict[str, set[str]](set)
    for entry in knob_entries():
        addresses[setting_name(entry.name)].add(entry.name)
    assert len(addresses) > 600
    assert [alike for alike in addresses.values() if len(alike) > 1 and alike not in SAME_SETTING] == []
    assert [name for name in addresses if "_" in name or "." in name or name != name.strip()] == []
    assert addresses.keys() & {plain_name(metric) for metric in METRICS} == set()
