"""Renamed addresses and file names, with the machines on which each old address had its meaning.

Old addresses still work in overrides, files and stored studies; `dse/config/renamed_addresses.py` reads the table
there. Knobs, designs and results use the new addresses only.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from dse.space.errors import DesignError
from dse.space.machines import POOL, TILES, guess_machine

T = TypeVar("T")


class Alias(NamedTuple):
    """A renamed address: its old form, its new form, and the machine on which it was renamed."""

    old: str
    new: str
    machine: str


RENAMED_ADDRESSES = (
    Alias("chip.hbm.bandwidth", "chip.hbm.channel_bandwidth", TILES),
    Alias("chip.core.achieved", "mapping.stack.matrix_achieved", POOL),
    Alias("chip.core.attention_passes", "mapping.stack.attention_passes", POOL),
    Alias("chip.hbm.achieved", "mapping.stack.hbm_achieved", POOL),
    Alias("chip.network.achieved", "mapping.stack.network_achieved", POOL),
    Alias("chip.network.call", "mapping.stack.collective_call", POOL),
    Alias("chip.operator_overhead", "mapping.stack.operator_overhead", POOL),
)
"""Renamed addresses, whose meaning differed between machines or which belonged to another part."""


CHOICES = {"stack": {"vllm_h100": "vllm_allreduce_h100"}}
"""Options of groups that were renamed, old name to new one, by group."""


def current_choice(group: str, name: str) -> str:
    """Present name of an option of a group of files, given its present or a former name.

    >>> current_choice("stack", "vllm_h100"), current_choice("stack", "tuned"), current_choice("chip", "vllm_h100")
    ('vllm_allreduce_h100', 'tuned', 'vllm_h100')
    """
    return CHOICES.get(group, {}).get(name, name)


def new_address_by_old(machine: str) -> dict[str, str]:
    """New addresses by their old ones, for one machine.

    >>> new_address_by_old(TILES)["chip.hbm.bandwidth"]
    'chip.hbm.channel_bandwidth'
    """
    return {alias.old: alias.new for alias in RENAMED_ADDRESSES if alias.machine == machine}


def current_address(address: str, machine: str) -> str:
    """Present form of an address, which may name a leaf or an entry below it such as `value` or `when`.

    >>> current_address("chip.hbm.bandwidth.note", TILES)
    'chip.hbm.channel_bandwidth.note'
    """
    for old, new in new_address_by_old(machine).items():
        if is_at_or_below(address, old):
            return new + address.removeprefix(old)
    return address


def rename_values(values: Mapping[str, T], machine: str, where: str) -> dict[str, T]:
    """Values by address, with every address in its present form.

    Raises:
        DesignError: an address is there by its old name and by its new one; `where` begins the message.
    """
    found: dict[str, T] = {}
    said: dict[str, str] = {}
    for address, value in values.items():
        new = current_address(address, machine)
        if new in said:
            raise named_twice_error(where, address, said[new])
        found[new], said[new] = value, address
    return found


def rename_study_record(said: Mapping[str, T]) -> dict[str, T]:
    """Entries of a stored study's record with present addresses; those of knobs begin with ``space.``.

    >>> rename_study_record({"chip.tile.sram": "8 MB", "space.chip.hbm.bandwidth.unit": "GB/s"})
    {'chip.tile.sram': '8 MB', 'space.chip.hbm.channel_bandwidth.unit': 'GB/s'}
    """
    machine, knob = machine_of_leaves(said), "space."
    return {
        knob + current_address(key.removeprefix(knob), machine)
        if key.startswith(knob)
        else current_address(key, machine): value
        for key, value in said.items()
    }


def machine_of_leaves(addresses: Iterable[str]) -> str:
    """Machine of a design, from the addresses of its leaves."""
    return guess_machine(address.split(".")[1] for address in addresses if address.startswith("chip."))


def is_at_or_below(address: str, leaf: str) -> bool:
    """Whether an address is that of a leaf or of an entry below the leaf."""
    return address == leaf or address.startswith(f"{leaf}.")


def named_twice_error(where: str, one: str, other: str) -> DesignError:
    """Error for an address that is set both by its old name and by its new one."""
    return DesignError(f"{where}: {one} and {other} are two names of the same address; set one of them")
