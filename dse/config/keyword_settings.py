"""Keyword arguments of Python as overrides: ``batch=16`` becomes ``workload.batch=[16]``.

A keyword names an address by the first of these rules that fits:

1. A key with a dot, ``@`` or a leading ``+`` or ``~`` is an address: ``{"chip.l2.size": "64 MB"}``.
2. A field at the top of a configuration is that field: ``chip``, ``model``, ``mapping``, ``fidelity``, ``seed``.
3. A field of the chosen workload is that field: ``batch`` is ``workload.batch``.
4. The last word of exactly one other address is that address: ``tp`` is ``mapping.both.tp``. A word of several is refused.

Values are those of Python: numbers, texts with units, lists, dictionaries, quantities of pint. A single value of a setting that
takes a list becomes a list of one.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, SupportsFloat, SupportsIndex, TypeAlias, runtime_checkable

from dse.config.compose import compose
from dse.config.override_errors import DEVICES, list_addresses, workloads_with_field
from dse.space.errors import CONFIGURATION_FIELDS, DesignError

NAMELESS_GROUPS = (
    "space",
    "objectives",
    "constraints",
    "metrics",
    "model",
    "report",
    "pools",
    "choices",
    "overrides",
    "as_given",
)
"""Parts of a configuration whose fields have no short words: studies and models name them, or nothing sets them."""

CHOICE_GROUPS = ("study", "chip", "model", "mapping", "workload", "stack", "inference_engine", "search", "verify", "workers")
"""Groups whose choice changes which addresses a configuration has."""

MAX_NEAREST = 3
"""Words at most that a refusal names for one that does not exist."""


@runtime_checkable
class QuantityLike(Protocol):
    """A number with a unit, as pint has it."""

    @property
    def magnitude(self) -> Any:
        """The number in front of the unit, or an array of numbers."""

    @property
    def units(self) -> Any:
        """The unit, with a format of its own as pint has it."""


Setting: TypeAlias = (
    "str | SupportsFloat | SupportsIndex | QuantityLike | os.PathLike[str] | Mapping[str, Setting] | Iterable[Setting] | None"
)
"""Value of a keyword argument."""

Override: TypeAlias = "str | Sequence[str] | Mapping[str, Setting]"
"""Positional argument: an override as on the command line, several of them, or values by address or short word."""


@dataclass(frozen=True)
class SettingIndex:
    """Short words of a configuration.

    Attributes:
        addresses: by last word, all addresses that end so.
        workload: fields of the workload.
        lists: addresses whose value is a list.
    """

    addresses: Mapping[str, tuple[str, ...]]
    workload: frozenset[str]
    lists: frozenset[str]

    def find_address(self, word: str) -> str:
        """Address of a short word; empty string if the configuration has none.

        Raises:
            DesignError: the word ends several addresses.
        """
        if word in self.workload:
            return f"workload.{word}"
        addresses = self.addresses.get(word, ())
        if len(addresses) > 1:
            several = f"{', '.join(addresses[:-1])} or {addresses[-1]}"
            raise DesignError(f"{word}: names {several}; write the address, as in {{{addresses[0]!r}: VALUE}}", address=word)
        return addresses[0] if addresses else ""


def read_settings(
    overrides: Iterable[Override],
    settings: Mapping[str, Setting],
    *,
    own: Sequence[str] = (),
    base: Sequence[str] = (),
    trust: bool = False,
) -> list[str]:
    """Overrides of positional and keyword arguments, in this order.

    Args:
        overrides: positional arguments.
        settings: keyword arguments, by short word or address.
        own: words that are options of the function and no settings of a design; they stay as they are.
        base: overrides that stand before all others, as ``study=NAME``; they are not in the answer.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: naming the argument that is wrong, with the nearest words.

    >>> read_settings(["chip=h100"], {"model": "llama3_8b", "batch": 16, "tp": 2, "chip.l2.size": "64 MB"})
    ['chip=h100', 'model=llama3_8b', 'workload.batch=[16]', 'mapping.both.tp=2', 'chip.l2.size=64 MB']
    """
    typed: list[str] = []
    given: dict[str, Setting] = {}
    for override in overrides:
        if isinstance(override, Mapping):
            given.update(override)
        else:
            typed += _check_overrides(override)
    given.update(settings)
    known = {word: value for word, value in given.items() if word in CONFIGURATION_FIELDS or word == "study" or word in own}
    words = [*typed, *(f"{word}={format_setting(value, word)}" for word, value in known.items())]
    short = {word: value for word, value in given.items() if word not in known}
    if not short:
        return words
    choices = tuple({group: choice for group, choice in map(_read_choice, (*base, *words)) if group}.values())
    return [*words, *(_read_short_word(word, value, choices, trust) for word, value in short.items())]


def format_setting(value: Setting, address: str) -> str:
    """Text of a value as an override has it.

    Raises:
        DesignError: the value is no setting.

    >>> format_setting(16, "seed"), format_setting([1, 8], "workload.batch"), format_setting(None, "workload.output")
    ('16', '[1,8]', 'null')
    >>> format_setting({"weights": "fp8"}, "precision"), format_setting(True, "screen.run")
    ('{weights: fp8}', 'true')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, QuantityLike):
        return _format_quantity_like(value, address)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_format_element(part, address)}" for key, part in value.items()) + "}"
    number: Any = value
    scalar = number.item() if hasattr(number, "item") and getattr(number, "ndim", 0) == 0 else number
    if scalar is None:
        return "null"
    if isinstance(scalar, bool):
        return "true" if scalar else "false"
    if isinstance(scalar, int | float):
        return repr(scalar)
    if isinstance(scalar, Iterable):
        return f"[{','.join(_format_element(part, address) for part in scalar)}]"
    raise DesignError(
        f"{address}: {value!r} is no value; give a number, a text with its unit, a list or a quantity", address=address
    )


def _format_element(value: Any, address: str) -> str:
    """Value in a list or a dictionary: a text that Hydra would take apart is in quotes."""
    text = format_setting(value, address)
    bare = not isinstance(value, str) or re.fullmatch(r"[\w./+-]+", text, re.ASCII)
    return text if bare else "'{}'".format(text.replace("'", "\\'"))


def _format_quantity_like(value: QuantityLike, address: str) -> str:
    """A quantity of any registry of units: its number, and its unit in the grammar of `dse.space.units`."""
    magnitude, unit = value.magnitude, f"{value.units:~C}".replace("**", "")
    if isinstance(magnitude, Iterable):
        return f"[{','.join(_format_element(f'{format_setting(part, address)} {unit}', address) for part in magnitude)}]"
    return f"{format_setting(magnitude, address)} {unit}".rstrip()


def _check_overrides(override: Any) -> list[str]:
    words = [override] if isinstance(override, str) else override
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise DesignError(f"overrides: {override!r} is no override; write it as on the command line: 'chip=a100', 'seed=1'")
    return list(words)


def _read_choice(override: str) -> tuple[str, str]:
    """Group and override of a choice of what a configuration consists of, of several chips the first; else empty strings."""
    group, _, name = override.partition("=")
    if group not in CHOICE_GROUPS and "@" not in group:
        return "", ""
    return group, f"{group}={name.strip('[] ').partition(',')[0]}" if group == "chip" else override


def _read_short_word(word: str, value: Setting, choices: tuple[str, ...], trust: bool) -> str:
    """Override of one keyword argument that is no field at the top of a configuration."""
    text = format_setting(value, word)
    is_address = re.search(r"[.@/]", word) is not None or word[:1] in ("+", "~")
    if is_address and not word.startswith("workload."):
        return f"{word}={text}"
    index = _index_settings(choices, trust, Path.cwd())
    address = word if is_address else index.find_address(word)
    if not address:  # of a file that changed?
        _index_settings.cache_clear()
        index = _index_settings(choices, trust, Path.cwd())
        address = index.find_address(word)
    if not address:
        raise DesignError(_describe_unknown_word(word, index), address=word)
    takes_list = address in index.lists and text[:1] != "[" and value is not None
    return f"{address}=[{_format_element(value, word)}]" if takes_list else f"{address}={text}"


def _describe_unknown_word(word: str, index: SettingIndex) -> str:
    """What to write for a word that the configuration does not have."""
    if word == "devices":
        return f"devices: no such setting; {DEVICES}"
    if workloads := workloads_with_field(word):
        return f"{word}: no field of this workload; set {' or '.join(f'workload={name!r}' for name in workloads)}"
    words = (*index.addresses, *CONFIGURATION_FIELDS)
    usual = index.workload | set(CONFIGURATION_FIELDS)
    nearest = sorted(get_close_matches(word, words, n=MAX_NEAREST, cutoff=0.6), key=lambda name: name not in usual)
    shown = [f"{name!r} ({', '.join(index.addresses.get(name, (name,)))})" for name in nearest]
    hint = f"did you mean {' or '.join(shown)}?" if shown else "its addresses are in dse list knobs"
    return f"{word}: no such setting; {hint}"


@lru_cache(maxsize=128)
def _index_settings(choices: tuple[str, ...], trust: bool, folder: Path) -> SettingIndex:
    """Short words of the configuration of some choices in a folder; that of a file which changed is made again on a miss."""
    config = {name: value for name, value in compose(choices, trust=trust).items() if name not in NAMELESS_GROUPS}
    addresses: dict[str, list[str]] = {}
    for address in list_addresses(config):
        if "." in address:
            addresses.setdefault(address.rpartition(".")[2], []).append(address)
    workload = config["workload"]
    lists = frozenset(f"workload.{name}" for name, value in workload.items() if isinstance(value, list))
    return SettingIndex({word: tuple(several) for word, several in addresses.items()}, frozenset(workload), lists)
