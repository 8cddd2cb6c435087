"""The prefill pool of a configuration: composed as its chip would be alone, under ``pools``.

``pools.prefill.chip=b200`` on the command line, or ``pools: {prefill: {chip: b200, ...}}`` in a study, names the chip that
prefills; what else begins with ``pools.prefill.`` is an override of that pool alone.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dse.config.overrides import CommandLine
from dse.space.design import PREFILL_ADDRESS
from dse.space.errors import DesignError, suggest_nearest

POOLS, PREFILL, LINK = "pools", "prefill", "link"

COMPOSED = ("chip", "mapping", "choices", "as_given")
"""What a configuration keeps of the prefill pool."""

SHARED = ("model", "workload", "precision")
"""Groups that both pools have alike."""


Compose = Callable[[CommandLine], dict[str, Any]]


def compose_with_pools(line: CommandLine, compose_one: Compose, compose_pool: Compose) -> dict[str, Any]:
    """Configuration of a command line, whose prefill pool is composed by itself.

    Args:
        line: what was typed.
        compose_one, compose_pool: compose a line of one chip, and that of the prefill pool, whose errors are one line.

    Raises:
        DesignError: a pool without a chip, a link without a pool, or a field that pools do not have.
    """
    for word in line.overrides:
        if word.lstrip("+").startswith(f"{POOLS}.decode."):
            raise DesignError(f"{POOLS}.decode: {DECODE_HINT}: {word.lstrip('+').removeprefix(f'{POOLS}.decode.')}")
    own = [word for word in line.overrides if word.lstrip("+").startswith(PREFILL_ADDRESS)]
    config = compose_one(replace(line, overrides=tuple(word for word in line.overrides if word not in own)))
    given = config.get(POOLS)
    if given is None and not own:
        return config
    given = {} if given is None else given
    _check_fields(given)
    overrides = [*_flatten(given.get(PREFILL) or {}), *(word.lstrip("+").removeprefix(PREFILL_ADDRESS) for word in own)]
    if not any(word.startswith("chip=") for word in overrides):
        raise DesignError(f"{PREFILL_ADDRESS}chip: missing; name the chip that prefills, as in {PREFILL_ADDRESS}chip=b200")
    if not given.get(LINK):
        raise DesignError(
            f"{POOLS}.{LINK}: missing; say the link from the prefill pool to the decode pool, as in +part@{POOLS}.{LINK}="
            f"pool_link_400g, or {POOLS}.{LINK}.bandwidth='50 GB/s' {POOLS}.{LINK}.latency='10 us'"
        )
    shared = [word for word in line.overrides if re.split(r"[=.@]", word.lstrip("+"))[0] in SHARED]
    chosen = [
        f"{group}={config['choices'][group]}"
        for group in ("model", "workload")
        if isinstance(config["choices"].get(group), str)
    ]
    side = replace(line, places=(), overrides=(*chosen, *shared, *_both_phases(overrides)))
    try:
        prefill = compose_pool(side)
    except DesignError as error:
        raise DesignError(f"{POOLS}.{PREFILL}: {error}") from None
    return config | {POOLS: {PREFILL: {key: prefill[key] for key in COMPOSED if key in prefill}, LINK: given[LINK]}}


DECODE_HINT = "the chip and the mapping of a design are those of its decode pool; set them without this prefix"


def _check_fields(given: Any) -> None:
    if not isinstance(given, Mapping):
        raise DesignError(f"{POOLS}: {given!r} is not a group of fields, as in {POOLS}.{PREFILL}.chip=b200")
    for name in given:
        if name not in (PREFILL, LINK):
            why = DECODE_HINT if name == "decode" else ""
            raise DesignError(f"{POOLS}.{name}: {why or suggest_nearest(str(name), (PREFILL, LINK))}")


def _flatten(fields: Any, before: str = "") -> list[str]:
    """Overrides of nested fields.

    >>> _flatten({"chip": "b200", "mapping": {"prefill": {"tp": 8}}})
    ['chip=b200', 'mapping.prefill.tp=8']
    """
    if not isinstance(fields, Mapping):
        raise DesignError(f"{POOLS}.{PREFILL}: {fields!r} is not a group of fields, as in {PREFILL_ADDRESS}chip=b200")
    words: list[str] = []
    for key, value in fields.items():
        words += _flatten(value, f"{before}{key}.") if isinstance(value, Mapping) else [f"{before}{key}={value}"]
    return words


def _both_phases(overrides: list[str]) -> list[str]:
    """Overrides with those of ``mapping.both`` for each phase."""
    words: list[str] = []
    for word in overrides:
        both = word.startswith("mapping.both.")
        words += [word.replace(".both.", f".{phase}.", 1) for phase in ("prefill", "decode")] if both else [word]
    return words
