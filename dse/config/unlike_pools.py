"""The prefill pool of a configuration: composed as its chip would be alone, under ``pools``.

``pools.prefill.chip=b200`` on the command line, or ``pools: {prefill: {chip: b200, ...}}`` in a study, names the chip that
prefills; what else begins with ``pools.prefill.`` is an override of that pool alone.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dse.config.overrides import CommandLine
from dse.space.design import PREFILL_ADDRESS
from dse.space.errors import DesignError, suggest_nearest

PREFILL_INSTANCES = "mapping.serving.prefill_instances"

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
    own, others = _split_overrides(line.overrides)
    config = compose_one(replace(line, overrides=others))
    given = config.get(POOLS)
    if given is None and not own:
        return config
    given = {} if given is None else given
    _check_fields(given)
    overrides = [*_flatten(given.get(PREFILL) or {}), *own]
    _check_overrides(overrides)
    if not any(word.startswith("chip=") for word in overrides):
        raise DesignError(f"{PREFILL_ADDRESS}chip: missing; name the chip that prefills, as in {PREFILL_ADDRESS}chip=b200")
    if not given.get(LINK):
        raise DesignError(
            f"{POOLS}.{LINK}: missing; say the link from the prefill pool to the decode pool, as in +part@{POOLS}.{LINK}="
            f"pool_link_400g, or {POOLS}.{LINK}.bandwidth='50 GB/s' {POOLS}.{LINK}.latency='10 us'"
        )
    if isinstance(given[LINK], str):
        raise DesignError(f"{POOLS}.{LINK}: a group of fields, not {given[LINK]}; write +part@{POOLS}.{LINK}={given[LINK]}")
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
    pools = {PREFILL: {key: prefill[key] for key in COMPOSED if key in prefill}, LINK: given[LINK]}
    return config | {POOLS: pools, "mapping": _with_prefill_instance(config["mapping"], line.overrides)}


def _with_prefill_instance(mapping: Mapping[str, Any], words: Sequence[str]) -> Mapping[str, Any]:
    """A mapping with one instance that prefills where nobody said how many; the answer's first lines say it.

    >>> _with_prefill_instance({"serving": {"prefill_instances": 0}}, ())
    {'serving': {'prefill_instances': 1}}
    """
    serving = mapping.get("serving") or {}
    if serving.get("prefill_instances") != 0:
        return mapping
    if any(PREFILL_INSTANCES in word for word in words):
        return mapping
    return {**mapping, "serving": {**serving, "prefill_instances": 1}}


DECODE_HINT = "the chip and the mapping of a design are those of its decode pool; set them without this prefix"


def _split_overrides(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Overrides of the prefill pool, without its prefix, and all others.

    What a pool or its link does not have yet is added, with a ``+`` or without one.

    >>> _split_overrides(["chip=h100", "pools.prefill.chip=b200", "+pools.prefill.part@chip=l2_256mb", "pools.link.kv=fp8"])
    (('chip=b200', '+part@chip=l2_256mb'), ('chip=h100', '++pools.link.kv=fp8'))
    """
    own: list[str] = []
    others: list[str] = []
    for word in words:
        sign, name = _split_sign(word)
        if not name.startswith(f"{POOLS}."):
            others.append(word)
            continue
        field = re.split(r"[.=]", name)[1]
        _check_fields({field: None}, name.removeprefix(f"{POOLS}.{field}").lstrip(".="))
        if name.startswith(PREFILL_ADDRESS):
            own_sign, name = _split_sign(name.removeprefix(PREFILL_ADDRESS))
            address = name.partition("=")[0]
            choice = "+" not in sign or not re.search("[.@]", address)  # a choice that each chip has
            own.append(f"{sign.replace('+', '') if choice else '+' if '@' in address else '++'}{own_sign}{name}")
        else:
            others.append(word if "~" in sign else f"++{name}")
    return tuple(own), tuple(others)


def _split_sign(word: str) -> tuple[str, str]:
    """What adds or removes a field, and the rest of an override.

    >>> _split_sign("+part@chip=l2_256mb")
    ('+', 'part@chip=l2_256mb')
    """
    name = word.lstrip("+~")
    return word[: len(word) - len(name)], name


OF_POOL = ("chip", "mapping", "stack", "inference_engine", "precision")
"""Groups that the prefill pool has of its own."""


def _check_overrides(words: Sequence[str]) -> None:
    """Refuse what nothing reads of the prefill pool.

    >>> _check_overrides(["chip=b200", "mapping.both.tp=2", "+part@chip=l2_256mb"])
    """
    for word in words:
        _, name = _split_sign(word)
        address, _, value = name.partition("=")
        group, *fields = address.split("@")[-1].split(".")
        if group not in OF_POOL:
            raise DesignError(
                f"{PREFILL_ADDRESS}{address}: both pools have one {group}; write {name}, or {PREFILL_ADDRESS} before one of "
                f"{', '.join(OF_POOL)}"
            )
        if group == "mapping" and fields[:1] == ["serving"]:
            raise DesignError(f"{PREFILL_ADDRESS}{address}: both pools have the serving settings of the design; write {name}")
        if group == "mapping" and fields[:1] == ["decode"]:
            rest = ".".join(("mapping", PREFILL, *fields[1:]))
            raise DesignError(
                f"{PREFILL_ADDRESS}{address}: this pool only prefills; write {PREFILL_ADDRESS}{rest}={value}, or {name} of the "
                "pool that decodes"
            )


def _check_fields(given: Any, typed: str = "") -> None:
    """Refuse fields that pools do not have; ``typed`` is what was set below one."""
    if not isinstance(given, Mapping):
        raise DesignError(f"{POOLS}: {given!r} is not a group of fields, as in {POOLS}.{PREFILL}.chip=b200")
    for name in given:
        if name not in (PREFILL, LINK):
            why = f"{DECODE_HINT}{f': {typed}' if typed else ''}" if name == "decode" else ""
            raise DesignError(f"{POOLS}.{name}: {why or f'no such field; {suggest_nearest(str(name), (PREFILL, LINK))}'}")


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
        both = _split_sign(word)[1].startswith("mapping.both.")
        words += [word.replace(".both.", f".{phase}.", 1) for phase in ("prefill", "decode")] if both else [word]
    return words
