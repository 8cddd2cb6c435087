"""Old addresses in overrides and files, replaced by the present ones (`dse.space.aliases`).

Overrides are renamed before Hydra sees them, since Hydra refuses an address that the composed files lack. Files are renamed
when they are composed, since only then the machine is known.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.space.aliases import (
    RENAMED_ADDRESSES,
    current_address,
    current_choice,
    is_at_or_below,
    machine_of_leaves,
    named_twice_error,
    new_address_by_old,
    rename_values,
)
from dse.space.machines import guess_machine

OVERRIDE = re.compile(r"([+~]*)(space\.)?([^=]*)(.*)", re.DOTALL)
"""Signs, whether it is of a knob, the address, and the value with its sign."""

GROUPS = ("chip", "mapping", "space")
"""Groups of files that say addresses."""


def may_use_old_address(words: Sequence[str]) -> bool:
    """Whether overrides may contain an old address of some machine."""
    olds = {alias.old for alias in RENAMED_ADDRESSES}
    return any(is_at_or_below(address, old) for old in olds for word in words for _, _, address, _ in _each(word, olds))


def rename_overrides(words: Sequence[str], config: Mapping[str, Any], others: Iterable[str] = ()) -> tuple[str, ...]:
    """Overrides by the addresses of the composed files: the present ones, or old ones of user files.

    Args:
        words: overrides.
        config: composed without the values that they set.
        others: addresses that may be set where files say the same by another (`dse.config.peaks`).

    Raises:
        DesignError: two of them set one address by two names.
    """
    table = new_address_by_old(guess_machine(_parts(config)))
    found: list[str] = []
    said: dict[str, str] = {}
    for word in words:
        for signs, space, address, value in _each(word, {*table, *table.values(), *others}):
            if not space and signs in ("", "+") and any(is_at_or_below(address, other) for other in others):
                signs = "++"
            of = next(
                ((old, new) for old, new in table.items() if is_at_or_below(address, old) or is_at_or_below(address, new)), None
            )
            if of is not None:
                old, new = of
                own = old if is_at_or_below(address, old) else new
                if said.setdefault(f"{space}{new}", own) != own:
                    raise named_twice_error("overrides", old, new)
                root: Any = config.get("space") if space else config
                there = old if _has(root, old) and not _has(root, new) else new
                address = there + address.removeprefix(own)
                signs = "++" if signs == "+" and there != own else signs  # by the other name it may be there
                _hint(own, new)
            found.append(f"{signs}{space}{address}{value}")
    return tuple(found)


def rename_config(config: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """A composed configuration by present addresses: its chip, knobs and pictures.

    What a file says by an old address counts over what the files below it say by the new one, but not over what was typed.

    Args:
        config: with its knobs by address.
        words: overrides, as `spelled` has them.

    Raises:
        DesignError: knobs of one address by two names.
    """
    machine = guess_machine(_parts(config))
    typed = {address for word in words for _, space, address, _ in _each(word, ()) if not space}
    found = dict(config)
    for old, new in new_address_by_old(machine).items():
        if not _has(found, old):
            continue
        _hint(old, new)
        value, found = _at(found, old), _without(found, old.split("."))
        other = "stack" in typed and new.startswith("mapping.stack.")  # one was chosen in the place of the file's
        if not other and not {new, f"{new}.value"} & typed:
            found = _with(found, new.split("."), value)
    space = {
        address: knob | {"when": rename_values(knob["when"], machine, f"space.{address}.when")} if knob.get("when") else knob
        for address, knob in rename_values(found["space"], machine, "space").items()
    }
    return {**found, "space": space, "report": _pictures(found.get("report"), machine)}


def choice(group: str, name: str) -> str:
    """A preset of a group by its present name; a hint names a renamed one."""
    now = current_choice(group, name)
    _hint(f"{group}={name}", f"{group}={now}")
    return now


def chosen(defaults: Any) -> Any:
    """A list of defaults with presets by their present names."""
    if not isinstance(defaults, list):
        return defaults
    return [{key: _chosen(key, name) for key, name in one.items()} if isinstance(one, dict) else one for one in defaults]


def _chosen(key: Any, name: Any) -> Any:
    """An option of an entry of a list of defaults, as ``override /stack: NAME``."""
    group = str(key).rpartition(" ")[2].strip("/").partition("@")[0]
    return choice(group, name) if isinstance(name, str) else name


def overridden_leaves(words: Sequence[str], leaves: Iterable[str]) -> set[str]:
    """Present addresses of a design that overrides set; of a group of fields those that it sets.

    >>> sorted(
    ...     overridden_leaves(["chip.mesh={rows: 4}", "+space.chip.clock='choice(1, 2)'"], ["chip.mesh.rows", "chip.mesh.cols"])
    ... )
    ['chip.mesh.rows']
    """
    leaves = list(leaves)
    machine = machine_of_leaves(leaves)
    table = (*leaves, *new_address_by_old(machine))
    return {current_address(address, machine) for word in words for _, space, address, _ in _each(word, table) if not space}


def refuse_double_names(content: Any, config_path: str, path: Path) -> None:
    """Refuse a file that sets one address by its old and its new name."""
    group = config_path.partition("/")[0]
    root = {group: content} if group in GROUPS else content
    for alias in RENAMED_ADDRESSES:
        for part in (root, root.get("space") if isinstance(root, Mapping) else None):
            if _has(part, alias.old) and _has(part, alias.new):
                raise named_twice_error(str(path), alias.old, alias.new)


def _each(word: str, table: Any) -> Iterator[tuple[str, str, str, str]]:
    """An override in its four parts; one of a group of fields, of which the table has some, once for each of these too."""
    signs, space, address, value = (part or "" for part in OVERRIDE.fullmatch(word).groups())  # type: ignore[union-attr]
    below = [old for old in table if old.startswith(f"{address}.")] if value.startswith("={") else []
    if below:
        from dse.config.sweep_syntax import hydra_text, overridden_group
    inner = overridden_group(word) if below else None
    for old in below if inner is not None else []:
        *path, last = old.removeprefix(f"{address}.").split(".")
        at: Any = inner
        for name in path:
            at = at.get(name) if isinstance(at, dict) else None
        if isinstance(at, dict) and last in at:
            yield signs, space, old, f"={hydra_text(at.pop(last))}"
    if inner != {}:
        yield signs, space, address, value if inner is None else f"={hydra_text(inner)}"


def _parts(config: Mapping[str, Any]) -> list[str]:
    parts = config.get("chip")
    return [str(name) for name, part in parts.items() if part is not None] if isinstance(parts, Mapping) else []


def _pictures(report: Any, machine: str) -> Any:
    """The pictures of a report; what is none is refused later."""

    def of(picture: Any) -> Any:
        if not isinstance(picture, Mapping):
            return picture
        return {key: current_address(str(said), machine) if key in ("x", "by") else said for key, said in picture.items()}

    if not isinstance(report, Mapping):
        return report
    kinds = {kind: report[kind] for kind in ("lines", "bars") if isinstance(report.get(kind), list)}
    return {**report, **{kind: [of(picture) for picture in pictures] for kind, pictures in kinds.items()}}


def _has(root: Any, address: str) -> bool:
    *path, last = address.split(".")
    for name in path:
        root = root.get(name) if isinstance(root, Mapping) else None
    return isinstance(root, Mapping) and last in root


def _at(root: Any, address: str) -> Any:
    for name in address.split("."):
        root = root[name]
    return root


def _without(root: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    head, *rest = path
    if not rest:
        return {name: value for name, value in root.items() if name != head}
    return {**root, head: _without(root[head], rest)}


def _with(root: Any, path: Sequence[str], value: Any) -> Any:
    """A group with a value set: a constant's fields over those that are there, as one file's over another's."""
    if not path:
        return {**root, **value} if isinstance(root, Mapping) and isinstance(value, Mapping) else value
    within_ = root if isinstance(root, Mapping) else {}
    return {**within_, path[0]: _with(within_.get(path[0]), path[1:], value)}


def _hint(old: str, new: str) -> None:
    if old != new:
        from dse.terminal.progress import say_once

        say_once(f"[yellow]{old}[/] is {new} now")
