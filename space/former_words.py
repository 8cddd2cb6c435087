"""Former names of metrics and fidelities, which are read everywhere and shown nowhere.

Content keys go on being made of the former names (`stored_metric`, `stored_fidelity`), so that what is stored is found.
`dse/config/renamed_words.py` renames overrides and files; this module has the tables.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from dse.space.errors import DesignError

T = TypeVar("T")

FORMER_METRICS = {
    "prefill_rate": "prefill_throughput",
    "decode_rate": "tokens_per_s_per_user",
    "communication": "communication_cycles",
    "efficiency": "compute_share",
    "utilisation": "mfu",
    "utilisation_per_system_mm2": "mfu_per_system_mm2",
    "peak": "peak_flops",
    "bandwidth": "achieved_bandwidth",
    "peak_share": "bandwidth_efficiency",
    "row_hits": "row_hit_rate",
    "accepted": "accepted_throughput",
    "detoured": "detour_share",
    "detour_links": "detour_hops",
    "traffic_verdict": "traffic_status",
    "attention_layer": "attention_layer_bytes",
    "ffn_layer": "ffn_layer_bytes",
    "load_verdict": "load_status",
    "prefill_busy": "prefill_busy_share",
    "decode_busy": "decode_busy_share",
    "held_by_batch": "blocked_by_batch_share",
    "held_by_memory": "blocked_by_kv_share",
    "kv_mean": "kv_utilisation_mean",
    "kv_peak": "kv_utilisation_peak",
    "kv_spilled": "kv_spilled_share",
    "recomputed": "recomputed_share",
    "yielded": "tokens_per_step",
    "prefix_reused": "prefix_hit_rate",
    "prefix_fetched": "prefix_host_hit_rate",
    "step_price_error": "iteration_time_error",
    "transition": "relayout_time",
    "plug_power": "wall_power",
    "chips_per_mtoken": "capital_per_mtoken",
    "power_energy": "rated_energy",
    "prefill_power_energy": "prefill_rated_energy_per_token",
    "decode_power_energy": "decode_rated_energy_per_token",
}
"""Present names of metrics by former ones."""

FORMER_FIDELITIES = {"closed": "analytical", "steady": "steady_state"}
"""Present words of fidelities by former ones; what follows ``@`` stays."""

STORED_METRICS = {present: former for former, present in FORMER_METRICS.items()}
STORED_FIDELITIES = {present: former for former, present in FORMER_FIDELITIES.items()}

SAID = "DSE_FORMER_WORDS_SAID"
"""Environment variable with the former words that a process tree has printed notices of."""

NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
"""A name in an expression of metrics; the exponent of a number is none."""


def current_metric(name: str) -> str:
    """The present name of a metric.

    >>> current_metric("utilisation"), current_metric("tpot")
    ('mfu', 'tpot')
    """
    return FORMER_METRICS.get(name, name)


def stored_metric(name: str) -> str:
    """The name of a metric in content keys: its first one.

    >>> stored_metric("mfu"), stored_metric("tpot")
    ('utilisation', 'tpot')
    """
    return STORED_METRICS.get(name, name)


def current_fidelity(word: str) -> str:
    """The present word of a fidelity.

    >>> current_fidelity("closed@8"), current_fidelity("events")
    ('analytical@8', 'events')
    """
    return _word(word, FORMER_FIDELITIES)


def stored_fidelity(word: str) -> str:
    """The word of a fidelity in content keys and stores: its first one.

    >>> stored_fidelity("steady_state"), stored_fidelity("analytical@8"), stored_fidelity("cycles@8")
    ('steady', 'closed@8', 'cycles@8')
    """
    return _word(word, STORED_FIDELITIES)


def read_metric(name: str) -> str:
    """The present name of a metric that somebody wrote; a notice says so where that is another one."""
    return _noted(name, current_metric(name))


def read_fidelity(word: str) -> str:
    """The present word of a fidelity that somebody wrote; a notice says so where that is another one."""
    return _noted(word, current_fidelity(word))


def rename_metrics(values: Mapping[str, T], where: str) -> dict[str, T]:
    """Values by metric that somebody wrote, by the present names.

    Args:
        values: by name.
        where: begins the message.

    Raises:
        DesignError: a metric is there by its former name and by its present one.

    >>> rename_metrics({"tpot": "min", "utilisation": "max"}, "objectives")
    {'tpot': 'min', 'mfu': 'max'}
    """
    refuse_two_names(values, where)
    return {read_metric(name) if isinstance(name, str) else name: value for name, value in values.items()}


def refuse_two_names(names: Iterable[Any], where: str) -> None:
    """Refuse a metric by its former name beside its present one."""
    known = set(names)
    for former, present in FORMER_METRICS.items():
        if former in known and present in known:
            raise DesignError(f"{where}: {former} and {present} are two names of one metric; set one of them")


def rename_metric_text(text: str) -> str:
    """An expression of metrics, or one name, by the present names; without a notice.

    >>> rename_metric_text("decode_rate / plug_power + 1e3 * peak_power")
    'tokens_per_s_per_user / wall_power + 1e3 * peak_power'
    """
    return NAME.sub(lambda renamed: current_metric(renamed[0]), text)


def read_metric_text(text: str) -> str:
    """The same of a text that somebody wrote: notices say which names are former ones."""
    return NAME.sub(lambda renamed: read_metric(renamed[0]), text)


def stored_metric_text(text: str) -> str:
    """An expression of metrics as content keys have it.

    >>> stored_metric_text("tokens_per_s_per_user / wall_power")
    'decode_rate / plug_power'
    """
    return NAME.sub(lambda renamed: stored_metric(renamed[0]), text)


def rename_stored_metrics(values: Mapping[str, T]) -> Mapping[str, T]:
    """Values by metric of a store by present names; the same object if no name was a former one."""
    present = _present(tuple(values))
    return values if present is None else dict(zip(present, values.values(), strict=True))


def rename_study_words(words: Mapping[str, Any]) -> dict[str, Any]:
    """What a stored study says of itself, by the present names of metrics and words of fidelities.

    >>> rename_study_words({"objectives.utilisation": "max", "fidelity": "closed", "metrics.own": "peak / tdp"})
    {'objectives.mfu': 'max', 'fidelity': 'analytical', 'metrics.own': 'peak_flops / tdp'}
    """
    renamed: dict[str, Any] = {}
    for key, value in words.items():
        group, _, name = key.partition(".")
        if group in ("objectives", "constraints"):
            renamed[f"{group}.{current_metric(name)}"] = value
        elif group == "metrics":
            renamed[key] = rename_metric_text(str(value))
        else:
            renamed[key] = current_fidelity(str(value)) if key in FIDELITY_SETTINGS else value
    return renamed


FIDELITY_SETTINGS = ("fidelity", "screen.fidelity", "verify.fidelity", "search.promote")
"""Settings whose value is a word of a fidelity."""


class MetricValues(dict[str, T]):
    """Values by metric, which answer to former names as well; these are not among the keys.

    >>> found = MetricValues({"mfu": 0.5})
    >>> found["utilisation"], found.get("peak"), "utilisation" in found, list(found)
    (0.5, None, True, ['mfu'])
    """

    def __missing__(self, name: str) -> T:
        present = current_metric(name)
        if present == name or present not in self:
            raise KeyError(name)
        return self[read_metric(name)]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (name in FORMER_METRICS and super().__contains__(FORMER_METRICS[str(name)]))

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a metric by either name, or the default."""
        try:
            return self[name]
        except KeyError:
            return default


def note_renamed(former: str, present: str) -> None:
    """Print once a process tree that a word is another one now, on standard error."""
    printed = os.environ.get(SAID, "").split()
    if former not in printed:
        os.environ[SAID] = " ".join([*printed, former])
        print(f"{former} is now {present}", file=sys.stderr)


def read_former_attribute(owner: object, name: str, present: Mapping[str, str]) -> Any:
    """An attribute by the name that it had before.

    Raises:
        AttributeError: none had this name.
    """
    if name not in present:
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    note_renamed(f"{type(owner).__name__}.{name}", f"{type(owner).__name__}.{present[name]}")
    return getattr(owner, present[name])


def _noted(former: str, present: str) -> str:
    if former != present:
        note_renamed(former, present)
    return present


def _word(word: str, table: Mapping[str, str]) -> str:
    name, mark, part = word.partition("@")
    return f"{table.get(name, name)}{mark}{part}"


@lru_cache(maxsize=256)
def _present(names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Names by the present ones; None where none is a former one."""
    return tuple(map(current_metric, names)) if any(name in FORMER_METRICS for name in names) else None
