"""Old addresses and what they are now, for each machine on which the old one meant that; old names of files that are chosen.

An old address works wherever people and files say one; `dse/config/renamed_addresses.py` reads the table there. Knobs,
designs and results have the new ones alone.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from dse.space.errors import DesignError
from dse.space.machines import POOL, TILES, guess_machine

T = TypeVar("T")


class Alias(NamedTuple):
    """An address that was another one before, on one machine."""

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
"""What was renamed: addresses that said one thing on one machine and another on the next, or that were of another part."""


CHOICES = {"stack": {"vllm_h100": "vllm_allreduce_h100"}}
"""Options of groups that were renamed, old name to new one, by group."""


def current_choice(group: str, name: str) -> str:
    """An option of a group of files by its name of now.

    >>> current_choice("stack", "vllm_h100"), current_choice("stack", "tuned"), current_choice("chip", "vllm_h100")
    ('vllm_allreduce_h100', 'tuned', 'vllm_h100')
    """
    return CHOICES.get(group, {}).get(name, name)


def new_address_by_old(machine: str) -> dict[str, str]:
    """New addresses by old ones, of a machine.

    >>> new_address_by_old(TILES)["chip.hbm.bandwidth"]
    'chip.hbm.channel_bandwidth'
    """
    return {alias.old: alias.new for alias in RENAMED_ADDRESSES if alias.machine == machine}


def current_address(address: str, machine: str) -> str:
    """An address as it is now: of a leaf, or of what is said of one, as its `value` or `when`.

    >>> current_address("chip.hbm.bandwidth.note", TILES)
    'chip.hbm.channel_bandwidth.note'
    """
    for old, new in new_address_by_old(machine).items():
        if is_at_or_below(address, old):
            return new + address.removeprefix(old)
    return address


def rename_values(values: Mapping[str, T], machine: str, where: str) -> dict[str, T]:
    """Values by address, by the addresses of now.

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
    """What a stored study says of itself, by the addresses of now; ``space.`` begins those of knobs.

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
    """The machine of a design by the addresses of its leaves."""
    return guess_machine(address.split(".")[1] for address in addresses if address.startswith("chip."))


def is_at_or_below(address: str, leaf: str) -> bool:
    """Whether an address is that of a leaf, or of what is said of it."""
    return address == leaf or address.startswith(f"{leaf}.")


def named_twice_error(where: str, one: str, other: str) -> DesignError:
    """What to say of an address that is set by its old name and by its new one."""
    return DesignError(f"{where}: {one} and {other} are two names of one address; set one of them")
