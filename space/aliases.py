"""Old addresses and options and what they are now; old names of files that are chosen.

An old address or option works wherever people and files say one; `dse/config/renamed_addresses.py` reads the tables there.
Knobs, designs and results have the new ones alone; content keys have the old ones (`dse.space.fields.iterate_key_leaves`).

A field of a record that was renamed says so itself, by `former` and `former_options` in its declaration. `RENAMED_ADDRESSES`
and `RENAMED_OPTIONS` have what is no field of a design, and what was renamed on some machines alone.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from dse.space.chip import Chip
from dse.space.errors import DesignError
from dse.space.machines import MACHINES, POOL, TILES, guess_machine
from dse.space.mapping import Mapping as Software

T = TypeVar("T")

EVERY = ""
"""In the place of a machine: whatever a chip is."""

ADDRESS = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
"""An address in an expression."""

PHASES = ("prefill", "decode")
"""Parts of a mapping that an address with ``both`` names."""


class Alias(NamedTuple):
    """An address that was another one before, on one machine or on every one."""

    old: str
    new: str
    machine: str = EVERY


RENAMED_ADDRESSES = (
    Alias("chip.hbm.bandwidth", "chip.hbm.channel_bandwidth", TILES),
    Alias("chip.core.achieved", "mapping.stack.matrix_efficiency", POOL),
    Alias("chip.core.attention_passes", "mapping.stack.attention_passes", POOL),
    Alias("chip.hbm.achieved", "mapping.stack.hbm_efficiency", POOL),
    Alias("chip.network.achieved", "mapping.stack.network_efficiency", POOL),
    Alias("chip.network.call", "mapping.stack.collective_launch", POOL),
    Alias("chip.operator_overhead", "mapping.stack.operator_launch", POOL),
    Alias("workload.percentile", "workload.slo_percentile"),
    Alias("workload.classes", "workload.slo_classes"),
    Alias("workload.clip", "workload.max_length"),
    Alias("workload.ticks", "workload.coarse_timestamps"),
    Alias("workload.characters", "workload.chars_per_token"),
    Alias("workload.scale", "workload.rate_scale"),
    Alias("workload.routing", "workload.expert_load"),
    Alias("workload.decode_at", "workload.decode_context"),
    Alias("workload.along", "workload.group_axis"),
    Alias("verify.side", "verify.submesh"),
    Alias("workers.start", "workers.start_time"),
)
"""What was renamed and is no field of a design's records; of a machine: addresses that said one thing there and another
elsewhere, or that were of another part."""

RENAMED_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "workload.arrivals": {"at_once": "offline", "closed": "closed_loop", "fixed": "constant"},
    "workload.rate": {"largest": "max"},
    "workload.rate_scale": {"largest": "max"},
}
"""New options by old ones, by present address, of settings that are no field of a design's records."""

CHOICES = {
    "part": {f"box_{links}": f"node_{links}" for links in ("nvlink3", "nvlink4", "nvlink5", "infinity")},
    "stack": {"vllm_h100": "vllm_allreduce_h100"},
}
"""Options of groups that were renamed, old name to new one, by group."""


RENAMED_GROUPS = {
    "library/context": "library/prefill_attention",
    "library/generation": "library/decode_attention",
    "library/latent_context": "library/mla_prefill_attention",
    "library/latent_generation": "library/mla_decode_attention",
    "library/products": "library/gemm",
    "library/experts": "library/grouped_gemm",
    "library/rings": "library/ring_collectives",
    "library/exchanges": "library/all_to_all",
    "library/short": "library/one_shot_allreduce",
    "library/dispatch": "library/moe_all_to_all",
}
"""Groups of files that were renamed, old name to new one."""


def current_choice(group: str, name: str) -> str:
    """An option of a group of files by its name of now.

    >>> current_choice("stack", "vllm_h100"), current_choice("stack", "tuned"), current_choice("chip", "vllm_h100")
    ('vllm_allreduce_h100', 'tuned', 'vllm_h100')
    """
    return CHOICES.get(group, {}).get(name, name)


NEVER_RENAMED = ("chip.tiers.",)
"""Parts that came after fields were renamed: records in them have the present names alone."""


@cache
def renamed_fields() -> tuple[Alias, ...]:
    """Aliases of fields of a chip and of a mapping that were renamed, in the order of declaration.

    What `RENAMED_ADDRESSES` has of an old address on a machine counts there.
    """
    aliases = dict.fromkeys(pair for pair in _renamed(Chip, "chip.", "chip.") if not pair[1].startswith(NEVER_RENAMED))
    aliases |= dict.fromkeys(_renamed(Software, "mapping.", "mapping."))
    special = {
        alias.old: {record_kind.machine for record_kind in RENAMED_ADDRESSES if record_kind.old == alias.old}
        for alias in RENAMED_ADDRESSES
    }
    return tuple(
        Alias(old, new, machine)
        for old, new in aliases
        for machine in (
            [record_kind for record_kind in MACHINES if record_kind not in special[old]] if old in special else [EVERY]
        )
    )


@cache
def new_address_by_old(machine: str) -> Mapping[str, str]:
    """New addresses by old ones, of a machine; with `EVERY`, those that are so whatever the machine is.

    Addresses of both phases are there as well as those of each.

    >>> new_address_by_old(TILES)["chip.hbm.bandwidth"]
    'chip.hbm.channel_bandwidth'
    """
    every = (*renamed_fields(), *RENAMED_ADDRESSES)
    return {alias.old: alias.new for alias in every if alias.machine in (EVERY, machine)}


@cache
def new_option_by_old() -> Mapping[str, Mapping[str, str]]:
    """New options by old ones, by present address."""
    options_by_address = {address: dict(options) for address, options in RENAMED_OPTIONS.items()}
    for address, options in (*_renamed_options(Chip, "chip."), *_renamed_options(Software, "mapping.")):
        options_by_address.setdefault(address, {}).update(options)
    return options_by_address


@cache
def all_old_addresses() -> Mapping[str, tuple[Alias, ...]]:
    """Aliases of every machine by their old addresses."""
    aliases_by_old: dict[str, tuple[Alias, ...]] = {}
    for alias in (*renamed_fields(), *RENAMED_ADDRESSES):
        aliases_by_old[alias.old] = (*aliases_by_old.get(alias.old, ()), alias)
    return aliases_by_old


def current_address(address: str, machine: str) -> str:
    """An address as it is now: of a leaf, or of what is said of one, as its `value` or `when`.

    >>> current_address("chip.hbm.bandwidth.note", TILES)
    'chip.hbm.channel_bandwidth.note'
    """
    old = find_renamed_part(address, new_address_by_old(machine))
    return address if old is None else new_address_by_old(machine)[old] + address.removeprefix(old)


def find_renamed_part(address: str, table: Mapping[str, Any]) -> str | None:
    """The longest of some addresses that an address is at or below; None where it is below none.

    >>> find_renamed_part("chip.boxes.start.note", {"chip.boxes": 1, "chip.boxes.start": 2, "chip.box": 3})
    'chip.boxes.start'
    """
    while address not in table:
        address, dot, _ = address.rpartition(".")
        if not dot:
            return None
    return address


def rename_expression(text: T, machine: str) -> T:
    """An expression of a tied setting by the addresses of now; what is no text is as it was.

    >>> rename_expression("2 * chip.hbm.bandwidth", TILES)
    '2 * chip.hbm.channel_bandwidth'
    """
    return ADDRESS.sub(lambda name: current_address(name[0], machine), text) if isinstance(text, str) else text  # type: ignore[return-value]


def current_option(address: str, value: T) -> T:
    """A value of a present address with an option that was renamed by its name of now."""
    options = new_option_by_old().get(address)
    return options.get(value, value) if options and isinstance(value, str) else value  # type: ignore[return-value]


def rename_values(values: Mapping[str, T], machine: str, where: str) -> dict[str, T]:
    """Values by address, by the addresses of now.

    Raises:
        DesignError: an address is there by its old name and by its new one; `where` begins the message.
    """
    renamed: dict[str, T] = {}
    spellings: dict[str, str] = {}
    for address, value in values.items():
        new = current_address(address, machine)
        if new in spellings:
            raise describe_named_twice(where, address, spellings[new])
        renamed[new], spellings[new] = value, address
    return renamed


def rename_stored_values(values: Mapping[str, T], machine: str) -> dict[str, T]:
    """Stored values by address, by the addresses and options of now.

    >>> rename_stored_values({"chip.hbm.bandwidth": 1.0}, TILES)
    {'chip.hbm.channel_bandwidth': 1.0}
    """
    renamed = ((current_address(address, machine), value) for address, value in values.items())
    return {address: current_option(address, value) for address, value in renamed}


def rename_study_record(addresses: Mapping[str, T]) -> dict[str, T]:
    """What a stored study says of itself, by the addresses and options of now.

    ``space.`` begins what it says of knobs, and ``chips.NAME.`` of one chip of several.

    >>> rename_study_record({"chip.tile.sram": "8 MB", "space.chip.hbm.bandwidth.unit": "GB/s"})
    {'chip.tile.sram': '8 MB', 'space.chip.hbm.channel_bandwidth.unit': 'GB/s'}
    """
    machine = guess_machine_of_leaves(addresses)
    renamed = {}
    for key, value in addresses.items():
        before, address = re.fullmatch(r"(space\.(?:.*\.when\.)?|chips\.[^.]*\.|)(.*)", key, re.DOTALL).groups()  # type: ignore[union-attr]
        if ".when." in before:
            knob = before.removeprefix("space.").removesuffix(".when.")
            before = f"space.{current_address(knob, machine)}.when."
        new = current_address(address, machine)
        leaf = find_renamed_part(new, new_option_by_old())
        if key.startswith("space.") and key.endswith(".tied"):
            value = rename_expression(value, machine)
        renamed[before + new] = value if leaf is None else _with_current_options(leaf, value)
    return renamed


def _with_current_options(address: str, value: T) -> T:
    """What a stored study says at an address of an option, one or a list of them as text, by their names of now."""
    if not isinstance(value, str):
        return value
    options = new_option_by_old()[address]
    return re.sub(r"[\w.+-]+", lambda word: options.get(word[0], word[0]), value)  # type: ignore[return-value]


def guess_machine_of_leaves(addresses: Iterable[str]) -> str:
    """The machine of a design by the addresses of its leaves, by present or by former names of parts."""
    table = new_address_by_old(EVERY)
    parts = {address.split(".")[1] for address in addresses if address.startswith("chip.")}
    return guess_machine(table.get(f"chip.{part}", f"chip.{part}").removeprefix("chip.") for part in parts)


def is_at_or_below(address: str, leaf: str) -> bool:
    """Whether an address is that of a leaf, or of what is said of it."""
    return address == leaf or address.startswith(f"{leaf}.")


def describe_named_twice(where: str, address: str, other: str) -> DesignError:
    """What to say of an address that is set by its old name and by its new one."""
    return DesignError(f"{where}: {address} and {other} are two names of one address; set one of them")


def _renamed(kind: type, old: str, new: str) -> Iterator[tuple[str, str]]:
    """Old and new addresses of renamed fields of a record and of what is below it; of those of both phases too."""
    for spec, inner, name in _fields(kind):
        former = spec.metadata.get("former", name)
        if former != name:
            yield old + former, new + name
        if inner is not None:
            inline = "inline" in spec.metadata
            below = _renamed(inner, old if inline else f"{old}{former}.", new if inline else f"{new}{name}.")
            for before, now in below:
                yield before, now
                if name in PHASES:
                    yield before.replace(f".{name}.", ".both.", 1), now.replace(f".{name}.", ".both.", 1)


def _renamed_options(kind: type, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Present addresses of leaves of a record whose options were renamed, with new options by old ones."""
    for spec, inner, name in _fields(kind):
        if options := spec.metadata.get("former_options"):
            yield prefix + name, options
        if inner is not None:
            for address, options in _renamed_options(inner, prefix if "inline" in spec.metadata else f"{prefix}{name}."):
                yield address, options
                if name in PHASES:
                    yield address.replace(f".{name}.", ".both.", 1), options


@cache
def _fields(kind: type) -> tuple[tuple[Any, type | None, str], ...]:
    """Fields of a record, once for each kind of record that a field may have."""
    return tuple(_each_kind(kind))


def _each_kind(kind: type) -> Iterator[tuple[Any, type | None, str]]:
    hints = get_type_hints(kind)
    for spec in fields(kind):
        kinds = spec.metadata.get("parts") or [
            hint for hint in (hints[spec.name], *get_args(hints[spec.name])) if hasattr(hint, "__dataclass_fields__")
        ]
        for inner in kinds or (None,):
            yield spec, inner, spec.name
