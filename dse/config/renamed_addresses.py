"""Old addresses and options in what people type and in what files say, spelled as they are now (`dse.space.aliases`).

What was renamed whatever a chip is, is spelled where it is read: overrides before Hydra sees them, files before they are
merged. What was renamed on some machines alone is spelled when the configuration is composed, since only then the machine is
known; overrides of it are spelled before Hydra sees them, which refuses an address that the composed files do not have.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dse.config.untrusted_files import SHIPPED_CONF
from dse.space.aliases import (
    EVERY,
    RENAMED_GROUPS,
    all_old_addresses,
    current_address,
    current_choice,
    current_option,
    describe_named_twice,
    find_renamed_part,
    guess_machine_of_leaves,
    is_at_or_below,
    new_address_by_old,
    new_option_by_old,
    rename_expression,
    rename_values,
)
from dse.space.machines import guess_machine

OVERRIDE = re.compile(r"([+~]*)(space\.)?([^=]*)(.*)", re.DOTALL)
"""Signs, whether it is of a knob, the address, and the value with its sign."""

REFERENCE = re.compile(r"(?<=\$\{)[A-Za-z_][\w.]*(?=\})")
"""The address in a reference to another value of a configuration."""

GROUPS = ("chip", "mapping", "space", "workload")
"""Groups of files that say addresses."""

SAID = "DSE_RENAMED_SAID"
"""Environment variable with the old names of which a process tree has printed its line."""


def rename_typed(words: Sequence[str]) -> tuple[str, ...]:
    """Overrides by the addresses of now, but for what was renamed on some machines alone.

    >>> rename_typed(["chip.mesh.rows=4", "space.chip.clock='choice(1, 2)'"])
    ('chip.mesh.rows=4', "space.chip.clock='choice(1, 2)'")

    Raises:
        DesignError: two of them set one address by two names.
    """
    renamed_words = [_rename_word(word) for word in words]
    if any(old != new for _, pairs in renamed_words for old, new in pairs):
        old_by_new: dict[str, str] = {}
        for _, pairs in renamed_words:
            for old, new in pairs:
                if old_by_new.setdefault(new, old) != old:
                    raise describe_named_twice("overrides", old_by_new[new].removeprefix("space."), old.removeprefix("space."))
                _print_hint(old.removeprefix("space."), new.removeprefix("space."))
    return tuple(word for word, _ in renamed_words)


def rename_references(text: str) -> str:
    """A text whose references to other values have the addresses of now."""
    if "${" not in text:
        return text
    return REFERENCE.sub(lambda match: current_address(match[0], EVERY), text)


def rename_references_in(value: Any) -> Any:
    """A value of a file, all texts in it by `rename_references`."""
    if isinstance(value, dict):
        return {key: rename_references_in(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rename_references_in(inner) for inner in value]
    return rename_references(value) if isinstance(value, str) else value


def rename_content(content: dict[Any, Any]) -> dict[Any, Any]:
    """Values of a user's file by present addresses, but for those renamed on some machines alone."""
    renamed = _rename_tree(content, EVERY)
    if isinstance(renamed.get("space"), Mapping):
        renamed = {**renamed, "space": _rename_tree(renamed["space"], EVERY)}
    return dict(renamed)


def can_use_old_address(words: Sequence[str]) -> bool:
    """Whether overrides may say an address that is an old one on some machine alone."""
    olds = _olds_of_machines()
    return any(find_renamed_part(address, olds) for word in words for _, _, address, _ in _split_override(word, olds))


@cache
def _olds_of_machines() -> dict[str, None]:
    return {old: None for old, aliases in all_old_addresses().items() if any(alias.machine != EVERY for alias in aliases)}


def rename_overrides(words: Sequence[str], config: Mapping[str, Any], others: Iterable[str] = ()) -> tuple[str, ...]:
    """Overrides by the addresses that composed files have: those of now, or the old one where a file has that alone.

    Args:
        words: overrides.
        config: composed without the values that they set.
        others: addresses that may be set where files say the same by another (`dse.config.peaks`).

    Raises:
        DesignError: two of them set one address by two names.
    """
    table = new_address_by_old(guess_machine(_part_names(config)))
    before = {new: old for old, new in table.items()}
    overrides: list[str] = []
    spellings: dict[str, str] = {}
    for word in words:
        for signs, space, address, value in _split_override(word, {**table, **before, **dict.fromkeys(others)}):
            if not space and signs in ("", "+") and any(is_at_or_below(address, other) for other in others):
                signs = "++"
            if own := find_renamed_part(address, table) or find_renamed_part(address, before):
                old, new = (own, table[own]) if own in table else (before[own], own)
                if spellings.setdefault(f"{space}{new}", own) != own:
                    raise describe_named_twice("overrides", old, new)
                root: Any = config.get("space") if space else config
                present = old if _has_address(root, old) and not _has_address(root, new) else new
                address = present + address.removeprefix(own)
                signs = "++" if signs == "+" and present != own else signs  # by the other name it may be there
                _print_hint(own, new)
            overrides.append(f"{signs}{space}{address}{value}")
    return tuple(overrides)


def rename_config(config: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """A composed configuration by the addresses of now: its chip, its knobs and its pictures.

    What a file says by an old address counts over what the files below it say by the new one, but not over what was typed.

    Args:
        config: with its knobs by address.
        words: overrides, as `spelled` has them.

    Raises:
        DesignError: knobs of one address by two names.
    """
    machine = guess_machine(_part_names(config))
    typed = {address for word in words for _, space, address, _ in _split_override(word, ()) if not space}

    def is_in_effect(new: str) -> bool:
        other = "stack" in typed and new.startswith("mapping.stack.")  # one was chosen in the place of the file's
        return not other and not {new, f"{new}.value"} & typed

    root = _rename_options(_rename_tree(config, machine, is_in_effect))
    space = {
        address: _rename_knob(address, knob, machine)
        for address, knob in rename_values(root["space"], machine, "space").items()
    }
    return {**root, "space": space, "report": _rename_pictures(root.get("report"), machine)}


def resolve_choice(group: str, name: str) -> str:
    """An option of a group of files by its name of now; a hint says where that is another one."""
    now = current_choice(group, name)
    _print_hint(f"{group}={name}", f"{group}={now}")
    return now


def rename_chosen_options(defaults: Any) -> Any:
    """A list of defaults with the options that it chooses by their names of now."""
    if not isinstance(defaults, list):
        return defaults
    return [
        dict(_chosen_option(key, name) for key, name in default.items()) if isinstance(default, dict) else default
        for default in defaults
    ]


def _chosen_option(key: Any, name: Any) -> tuple[Any, Any]:
    """An entry of a list of defaults, as ``override /stack: NAME`` or ``/library/gemm@gemm: NAME``."""
    before, slash, group = re.fullmatch(r"(.*?)(/?)([^ /]*(?:/[^ ]*)?)", str(key)).groups()  # type: ignore[union-attr]
    group, at, package = group.partition("@")
    if not isinstance(name, str):
        return key, name
    new = current_group(group, name)
    if at and f"library/{package}" in RENAMED_GROUPS:  # a part of the stack that the file itself is
        package = RENAMED_GROUPS[f"library/{package}"].removeprefix("library/")
    return f"{before}{slash}{new}{at}{current_address(package, EVERY)}", resolve_choice(group, name)


def current_group(group: str, name: str) -> str:
    """Name of now of a group of files that has a file; a group of the user's own keeps its old name."""
    new = RENAMED_GROUPS.get(group, group)
    if new == group or not (SHIPPED_CONF / new / f"{name}.yaml").is_file():
        return group
    _print_hint(group, new)
    return new


def overridden_leaves(words: Sequence[str], leaves: Iterable[str]) -> set[str]:
    """Addresses of a design that overrides give values, by their names of now; of a group of fields those that it has.

    >>> sorted(
    ...     overridden_leaves(["chip.mesh={rows: 4}", "+space.chip.clock='choice(1, 2)'"], ["chip.mesh.rows", "chip.mesh.cols"])
    ... )
    ['chip.mesh.rows']
    """
    leaves = list(leaves)
    machine = guess_machine_of_leaves(leaves)
    table = (*leaves, *new_address_by_old(machine))
    return {
        current_address(address, machine)
        for word in words
        for _, space, address, _ in _split_override(word, table)
        if not space
    }


def refuse_double_names(content: Any, config_path: str, path: Path) -> None:
    """Refuses a file that sets one address by its old name and by its new one."""
    group = config_path.partition("/")[0]
    root = {group: content} if group in GROUPS else content
    for part in (root, root.get("space") if isinstance(root, Mapping) else None):
        for old, aliases in all_old_addresses().items():
            for alias in aliases if _has_address(part, old) else ():
                if _has_address(part, alias.new) and _say_the_same(_value_at(part, old), _value_at(part, alias.new)):
                    raise describe_named_twice(str(path), old, alias.new)


def _say_the_same(old: Any, new: Any) -> bool:
    """Whether two values of one address are of one leaf at least: parts of a design with other fields each are not."""
    groups = all(isinstance(first_value, Mapping) and "value" not in first_value for first_value in (old, new))
    return not groups or bool(old.keys() & new.keys())


def _rename_word(word: str) -> tuple[str, list[tuple[str, str]]]:
    """An override by the addresses of now, and each address that it sets as it is typed and as it is now."""
    signs, space, address, value = (part or "" for part in OVERRIDE.fullmatch(word).groups())  # type: ignore[union-attr]
    new = current_address(address, EVERY)
    pairs = [(f"{space}{address}", f"{space}{new}")]
    if value.startswith("={") and (inner := _group(word)):
        pairs = [(f"{space}{old}", f"{space}{current_address(old, EVERY)}") for old in _leaves(inner, f"{address}.")]
        if any(old != now for old, now in pairs):
            from dse.config.sweep_syntax import hydra_text

            value = (
                f"={hydra_text(_value_at(_rename_tree(_with_value({}, address.split('.'), inner), EVERY, hint=False), new))}"
            )
    value = rename_references(value)
    if "@" in address:
        group, _, package = address.partition("@")
        group, place = current_group(group, value.removeprefix("=").strip("'\"")), current_address(package, EVERY)
        return f"{signs}{group}@{place}{value}", [(package, place)]
    return f"{signs}{space}{new}{value if space else _current_value(new, value)}", pairs


def _current_value(address: str, value: str) -> str:
    """The value of an override of a present address, ``=`` before it, with an option by its name of now."""
    old = value.removeprefix("=").strip("'\"")
    now = current_option(address, old)
    _print_hint(f"{address}={old}", f"{address}={now}")
    return value if now == old else f"={now}"


def _group(word: str) -> Any:
    from dse.config.sweep_syntax import overridden_group

    return overridden_group(word)


def _leaves(group: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Addresses of the values in a group."""
    for name, value in group.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


Counts = Callable[[str], bool]
"""Whether what is said by an old address counts over what stands at a new one."""


def _rename_tree(
    root: Mapping[str, Any], machine: str, counts: Counts = lambda new: True, *, hint: bool = True
) -> dict[str, Any]:
    """Values of a configuration by new addresses, each where it stood if its group stays.

    Args:
        root: values by address, in groups.
        machine: whose addresses.
        counts: by new address.
        hint: whether to say what was renamed.
    """
    renamed = _rename_names(root, _names(machine)[0], ("", ""), counts, hint)
    for old, new in _names(machine)[1]:
        if _has_address(renamed, old):
            if hint:
                _print_hint(old, new)
            value, renamed = _value_at(renamed, old), _without_path(renamed, old.split("."))
            if counts(new):
                renamed = _with_value(renamed, new.split("."), value)
    return renamed


def _rename_names(
    group: Mapping[str, Any], names: Mapping[str, Any], prefix: tuple[str, str], counts: Counts, hint: bool
) -> dict[str, Any]:
    """A group of values by new names; `prefix` is its old and its new address."""
    renamed_group: dict[str, Any] = {}
    for name, value in group.items():
        new, below = names.get(name, (name, {}))
        old_address, address = f"{prefix[0]}{name}", f"{prefix[1]}{new}"
        if below and isinstance(value, Mapping):
            value = _rename_names(value, below, (f"{old_address}.", f"{address}."), counts, hint)
        if new != name:
            if hint:
                _print_hint(old_address, address)
            if not counts(address):
                continue
            if isinstance(value, Mapping) and "value" not in value:
                value = {inner: inner_value for inner, inner_value in value.items() if counts(f"{address}.{inner}")}
        if new in renamed_group:  # what is said by the old name counts
            value = _with_value(renamed_group[new], (), value) if new != name else _with_value(value, (), renamed_group[new])
        renamed_group[new] = value
    return renamed_group


@cache
def _names(machine: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """What was renamed on a machine: by name, the new name and the same of what is below; and what is in another group now."""
    names: dict[str, Any] = {}
    moved = []
    for old, new in new_address_by_old(machine).items():
        *path, last = old.split(".")
        if current_address(".".join(path), machine) != new.rpartition(".")[0]:
            moved.append((old, new))
            continue
        at = names
        for name in path:
            at = at.setdefault(name, (name, {}))[1]
        at[last] = (new.rpartition(".")[2], at.get(last, (last, {}))[1])
    return names, moved


def _rename_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with options that were renamed by their names of now."""
    renamed = dict(config)
    for address in new_option_by_old():
        for place in (f"{address}.value", address):
            if _has_address(renamed, place) and (new := current_option(address, old := _value_at(renamed, place))) != old:
                _print_hint(f"{address}={old}", f"{address}={new}")
                renamed = _with_value(renamed, place.split("."), new)
    return renamed


def _rename_knob(address: str, knob: Mapping[str, Any], machine: str) -> dict[str, Any]:
    """An entry of a space whose address is that of now, with what it says by the addresses and options of now."""
    renamed_knob = dict(knob)
    if knob.get("when"):
        when = rename_values(knob["when"], machine, f"space.{address}.when")
        renamed_knob["when"] = {other: _current_options(other, allowed) for other, allowed in when.items()}
    if "values" in knob:
        renamed_knob["values"] = _current_options(address, knob["values"])
    if "tied" in knob:
        renamed_knob["tied"] = rename_expression(knob["tied"], machine)
    return renamed_knob


def _current_options(address: str, setting: Any) -> Any:
    """One or several values of a present address by the options of now."""
    return (
        [current_option(address, value) for value in setting] if isinstance(setting, list) else current_option(address, setting)
    )


def _split_override(word: str, table: Any) -> Iterator[tuple[str, str, str, str]]:
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


def _part_names(config: Mapping[str, Any]) -> list[str]:
    parts = config.get("chip")
    return [str(name) for name, part in parts.items() if part is not None] if isinstance(parts, Mapping) else []


def _rename_pictures(report: Any, machine: str) -> Any:
    """The pictures of a report; what is none is refused later."""

    def rename_picture(picture: Any) -> Any:
        if not isinstance(picture, Mapping):
            return picture
        return {
            key: current_address(str(setting), machine) if key in ("x", "by") else setting for key, setting in picture.items()
        }

    if not isinstance(report, Mapping):
        return report
    kinds = {kind: report[kind] for kind in ("lines", "bars") if isinstance(report.get(kind), list)}
    renamed = {**report, **{kind: [rename_picture(picture) for picture in pictures] for kind, pictures in kinds.items()}}
    if isinstance(points := report.get("points"), Mapping):
        renamed["points"] = {name: _point(values, machine, f"report.points.{name}") for name, values in points.items()}
    return renamed


def _point(values: Any, machine: str, where: str) -> Any:
    """Values of knobs by the addresses and options of now; what is no group is refused later."""
    if not isinstance(values, Mapping):
        return values
    renamed = rename_values({str(address): value for address, value in values.items()}, machine, where)
    return {address: current_option(address, value) for address, value in renamed.items()}


def _has_address(root: Any, address: str) -> bool:
    *path, last = address.split(".")
    for name in path:
        root = root.get(name) if isinstance(root, Mapping) else None
    return isinstance(root, Mapping) and last in root


def _value_at(root: Any, address: str) -> Any:
    for name in address.split("."):
        root = root[name]
    return root


def _without_path(root: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    head, *rest = path
    if not rest:
        return {name: value for name, value in root.items() if name != head}
    return {**root, head: _without_path(root[head], rest)}


def _with_value(root: Any, path: Sequence[str], value: Any) -> Any:
    """A group with a value set: a constant's fields over those that are there, as one file's over another's."""
    if not path:
        return {**root, **value} if isinstance(root, Mapping) and isinstance(value, Mapping) else value
    within_ = root if isinstance(root, Mapping) else {}
    return {**within_, path[0]: _with_value(within_.get(path[0]), path[1:], value)}


def _print_hint(old: str, new: str) -> None:
    """Says on standard error what an old name is now: once a process tree, and nothing while a shell completes a line."""
    printed = os.environ.get(SAID, "").split()
    if old == new or old in printed or "COMP_LINE" in os.environ:
        return
    os.environ[SAID] = " ".join((*printed, old))
    from dse.terminal.progress import say

    say(f"[yellow]{old}[/] is now {new}")
