"""Designs of one chip with one mapping, or of two pools; content keys, and designs as arrays."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dse.space.array_math import Array, Number
from dse.space.chip import Chip
from dse.space.fields import (
    iterate_key_leaves,
    iterate_leaves,
    option_field,
    quantity_field,
    record_class,
    replace_leaves,
)
from dse.space.mapping import Mapping
from dse.space.number_formats import explain_unfit, formats_of_tensor

PREFILL_ADDRESS = "pools.prefill."
"""Begins the addresses of the prefill pool's chip and mapping."""


@record_class
class PoolLink:
    """Link over which KV caches go from the prefill pool to the decode pool."""

    bandwidth: Number = quantity_field("B/s", "bandwidth of each prefill chip to the decode pool, one direction", positive=True)
    decode_bandwidth: Any = quantity_field(
        "B/s",
        "bandwidth of each decode chip from the prefill pool; that of a prefill chip if absent",
        positive=True,
        absent=True,
    )
    latency: Number = quantity_field("s", "time from the first byte sent to its arrival, protocol included")
    kv: Any = option_field(
        "format of KV caches on the link; that of the decode pool if absent",
        formats_of_tensor("kv"),
        unfit=explain_unfit("kv"),
        absent=True,
    )
    energy_per_byte: Any = quantity_field(
        "J/B",
        "energy of a byte over the link, both ends; that of links between boards of the prefill chip if absent",
        absent=True,
    )


@record_class
class PrefillPool:
    """Chips that only prefill: their chip, and the mapping of prefill on them."""

    chip: Chip
    mapping: Mapping


@record_class
class UnlikePools:
    """The prefill pool beside a decode pool on other chips, and the link between them."""

    prefill: PrefillPool
    link: PoolLink


def prefill_mapping(design: "Design") -> Mapping:
    """Mapping of the prefill pool, with the serving settings of both pools."""
    assert design.pools is not None
    return replace(design.pools.prefill.mapping, serving=design.mapping.serving)


def receiving_bandwidth(link: PoolLink) -> Any:
    """Bandwidth of each decode chip from the prefill pool. [B/s]"""
    return link.bandwidth if link.decode_bandwidth is None else link.decode_bandwidth


def link_energy(pools: UnlikePools) -> Any:
    """Energy of a byte from pool to pool. [J/B]"""
    link, technology = pools.link, pools.prefill.chip.technology
    return technology.board_energy_per_byte if link.energy_per_byte is None else link.energy_per_byte


@dataclass(frozen=True, slots=True)
class Design:
    """One chip with one mapping; the unit that searches vary and evaluators evaluate.

    Attributes:
        chip, mapping: where prefill is on chips of another kind, those of the decode pool, with the serving settings of both.
        pools: the prefill pool and the link from it, where prefill is on chips of another kind.
    """

    chip: Chip
    mapping: Mapping
    pools: UnlikePools | None = None


@dataclass(frozen=True, slots=True)
class Designs:
    """Many designs grouped by structure (leaves present, and options); row i is the i-th design."""

    size: int
    groups: tuple[tuple[Array, Design], ...]

    def __len__(self) -> int:
        return self.size


KEY_DIGITS = 32
"""Hexadecimal digits of a content key."""


def design_key(design: Design) -> str:
    """Content key of a design: equal for equal leaves, from whatever file or override they come.

    Returns:
        32 hexadecimal digits of SHA-256 over ``address=value`` lines; numbers count by value, so 8 and 8.0 are equal.
    """
    return record_key(design)


def record_key(value: Any) -> str:
    """The content key of a value object, of the addresses and values that `iterate_key_leaves` has."""
    return key_of_leaves(iterate_key_leaves(value))


def key_of_leaves(items: Iterable[tuple[str, Any]]) -> str:
    """Content key of (address, value) pairs."""
    return hash_lines(key_line(address, value) for address, value in items)


def key_line(address: str, value: Any) -> str:
    """One line of text from which a content key is computed: ``address=value``."""
    return f"{address}={float(value)!r}" if isinstance(value, int | float) else f"{address}={value}"


def hash_lines(entries: Iterable[str]) -> str:
    """Content key computed from lines of text: leading hexadecimal digits of their SHA-256."""
    return hashlib.sha256("\n".join(entries).encode()).hexdigest()[:KEY_DIGITS]


LEAST = 10
"""Digits of a key that an id of a design has at least."""


def make_ids(keys: Sequence[str]) -> list[str]:
    """Shortest prefixes of design keys that are unique among the given keys, of `LEAST` digits or more.

    >>> make_ids(["0123456789abcd", "0123456789abff", "fedcba9876543210"])
    ['0123456789abc', '0123456789abf', 'fedcba9876']
    """
    several = sorted(set(keys))
    same = [_alike(key, other) for key, other in pairwise(several)]
    longest = {key: max(sides) + 1 for key, *sides in zip(several, [0, *same], [*same, 0], strict=True)}
    return [key[: max(LEAST, longest[key])] for key in keys]


def _alike(key: str, other: str) -> int:
    """Digits that the beginnings of two keys share."""
    return next((place for place, (mine, its) in enumerate(zip(key, other, strict=False)) if mine != its), len(key))


def stack_designs(designs: Sequence[Design]) -> Designs:
    """Stack designs into arrays, one group per structure; leaves on which all agree stay scalars."""
    if len(designs) == 1:
        return Designs(1, ((np.zeros(1, dtype=np.intp), designs[0]),))
    rows: dict[tuple[str, ...], list[int]] = {}
    table = []
    for row, design in enumerate(designs):
        leaves = list(iterate_leaves(design))
        table.append({address: value for address, value, _ in leaves})
        apart = (str(value) for _, value, spec in leaves if isinstance(value, str) or "apart" in spec.metadata)
        rows.setdefault((*table[row], *apart), []).append(row)
    groups = []
    for members in rows.values():
        first = table[members[0]]
        columns = {address: [table[row][address] for row in members] for address in first}
        changes = {a: np.asarray(c, dtype=float) for a, c in columns.items() if any(v != c[0] for v in c)}
        groups.append((np.asarray(members, dtype=np.intp), replace_leaves(designs[members[0]], changes)))
    return Designs(len(designs), tuple(groups))
