"""Options of settings with their meanings: of registries, formats and presets where these hold them, else of one table."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dse.config.yaml_files import read_document
from dse.reference.entries import Entry, Fact
from dse.reference.knobs import combination_settings, knob_settings, model_settings, study_settings, workload_settings
from dse.reference.presets import first_sentence, preset_entry, preset_names
from dse.reference.settings import Setting
from dse.space.number_formats import FORMATS

FILE = Path(__file__).with_name("option_meanings.yaml")

PRESETS = {"SearchSettings.sampler": "search", "WorkerSettings.kind": "workers"}
"""Groups of presets whose names options are."""

FORMAT_FIELDS = ("FormatPlan", "reduction_format")
"""Record and field whose options are number formats."""


class Option(NamedTuple):
    """An option of a field of records.

    Attributes:
        field: name of the field, the last part of its addresses.
        name: as it is written.
        meaning: empty string where nothing says it.
        addresses: of the settings that have it.
    """

    field: str
    name: str
    meaning: str
    addresses: tuple[str, ...]


def option_entries() -> list[Entry]:
    """Entries of all options, named FIELD=OPTION."""
    return [
        Entry(f"{option.field}={option.name}", option.meaning, {"settings": Fact(", ".join(option.addresses))})
        for option in list_options()
    ]


@cache
def list_options() -> tuple[Option, ...]:
    """Options of all settings; those of one field, name and meaning are one."""
    addresses: dict[tuple[str, str, str], dict[str, None]] = {}
    for setting in _all_settings():
        for name, meaning in _options(setting):
            addresses.setdefault((setting.spec.name, name, meaning), {})[setting.address] = None
    return tuple(Option(*words, tuple(found)) for words, found in sorted(addresses.items()))


def table_keys() -> set[tuple[str, str]]:
    """Fields and options of the table of meanings, to see that none is left over."""
    return {(field, str(option)) for field, options in read_document(FILE).items() for option in options}


def used_keys() -> set[tuple[str, str]]:
    """Fields and options of the table that a setting has."""
    return {(key, name) for setting in _all_settings() for key in _keys(setting) for name, _ in _options(setting)}


def _all_settings() -> Iterator[Setting]:
    yield from knob_settings()
    for workload in preset_names("workload"):
        yield from workload_settings(workload)
    yield from (*combination_settings(), *model_settings())
    for group in study_settings().values():
        yield from group


def _options(setting: Setting) -> Iterator[tuple[str, str]]:
    """Options of a setting, each with its meaning."""
    own = _table_meanings(setting)
    meanings = {**_registry_meanings(setting), **own}
    limits = setting.spec.metadata
    inner = limits.get("list")
    limits = limits if inner is None or isinstance(inner, type) else inner.metadata
    names: Iterable[str] = dict.fromkeys((*limits.get("options", ()), *limits.get("words", ()), *meanings))
    for name in names:
        yield str(name), meanings.get(str(name)) or _format_meaning(setting, str(name)) or _preset_meaning(setting, str(name))


def _keys(setting: Setting) -> tuple[str, str]:
    return f"{setting.record.__name__}.{setting.spec.name}", setting.spec.name


def _table_meanings(setting: Setting) -> Mapping[str, str]:
    """Meanings of the table: of the record's field, else of the field where it has these options."""
    table = read_document(FILE)
    own, common = (table.get(key) for key in _keys(setting))
    if own is not None:
        return {str(name): meaning for name, meaning in own.items()}
    limits = setting.spec.metadata
    inner = limits.get("list")
    limits = limits if inner is None or isinstance(inner, type) else inner.metadata
    known = {*map(str, limits.get("options", ())), *map(str, limits.get("words", ()))}
    fits = known or "options" in limits
    return {str(name): text for name, text in (common or {}).items() if fits and (not known or str(name) in known)}


def _registry_meanings(setting: Setting) -> dict[str, str]:
    """Meanings of the options of a registry of kernels: the first sentence of each one's module."""
    registry = _registries().get(_keys(setting)[0])
    return {} if registry is None else {name: _module_line(registry[name]) for name in registry}


@cache
def _registries() -> Mapping[str, Mapping[str, Any]]:
    from dse.evaluators.kernels.collective import ALLREDUCE, EXCHANGES, TEAMS
    from dse.evaluators.kernels.gemm import GEMM
    from dse.evaluators.kernels.gemv import GEMV
    from dse.evaluators.kernels.kv import KV

    products = ("RegionPlan.gemm", "RegionPlan.gemm_attention", "RegionPlan.gemm_ffn", "MeshProductPlan.gemm")
    return {
        **dict.fromkeys(products, GEMM),
        **dict.fromkeys(("RegionPlan.gemv", "MeshProductPlan.gemv"), GEMV),
        "TensorParallelPlan.allreduce": ALLREDUCE,
        "Mapping.kv_placement": KV,
        "TileCollectivePlan.collective": {**TEAMS, **EXCHANGES},
    }


def _module_line(module: Any) -> str:
    """What a kernel's module says of itself in its first sentence."""
    lines = (module.__doc__ or "").strip().partition("\n\n")[0]
    return first_sentence(" ".join(lines.split()))


def _format_meaning(setting: Setting, name: str) -> str:
    """Bits of a number format, and of its scales; the empty string for other options."""
    if name not in FORMATS or not {setting.record.__name__, setting.spec.name} & {*FORMAT_FIELDS}:
        return ""
    number = FORMATS[name]
    block = f"{number.block}" if number.across == 1 else f"{number.block} x {number.across}"
    scales = f", {number.scale} bits of scale for each {block} values" if number.scale else ""
    return f"{number.bits} bits{scales}: {number.nbytes:g} B a value"


def _preset_meaning(setting: Setting, name: str) -> str:
    """What the head of a preset of that name says; the empty string where options are no presets."""
    group = PRESETS.get(_keys(setting)[0], "")
    return preset_entry(group, name).line if group else ""
