"""Errors of command lines that Hydra cannot compose: one line with the wrong address and valid ones."""

import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from dse.config.override_syntax import describe_unparsable_override
from dse.config.part_presets import PRESETS, parts_with_address
from dse.config.record_parser import CONSTANT, best_matching_kind, record_type
from dse.config.untrusted_files import SHIPPED_CONF
from dse.config.yaml_files import read_document
from dse.space.chip import Chip
from dse.space.errors import suggest_nearest
from dse.space.machines import MACHINES, NODE_HINT, guess_machine
from dse.space.mapping import Mapping

TIE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
"""A value that is another field's."""

ROOTS: dict[str, type] = {"chip": Chip, "mapping": Mapping}
"""Records of the configuration whose parts may be left out."""

NAMED = {("metrics",), ("objectives",), ("constraints",), ("report", "points")}
"""What a study gives names of its own, or as many as it likes."""

SPLITS = ("pp", "ep", "dp")
"""Ways to divide a model that dies of one box do not have."""

DEVICES = "mapping.both.tp sets the number of devices (with several nodes also pp, ep and dp); dse capacity has devices=N"
"""Where people say how many devices there are."""

MOST_NAMED = 4
"""Addresses at most that a refusal names for one that is too short."""


def find_chosen_part(words: Sequence[str]) -> str:
    """Which word of a line chooses what presets are made of in the place of a preset; "" where none does.

    >>> find_chosen_part(["chip=h200", "mapping=parts/serving"]).partition(";")[0]
    'mapping: parts/serving is a part of presets and not a mapping'
    >>> find_chosen_part(["chip=h200", "mapping=serving", "space.mapping.both.tp=parts/serving"])
    ''
    """
    for word in words:
        group, _, name = word.lstrip("+").partition("=")
        if name.startswith("parts/") and (SHIPPED_CONF / group / "parts").is_dir():
            known = sorted(path.stem for path in (SHIPPED_CONF / group).glob("*.yaml"))
            return f"{group}: {name} is a part of presets and not a {group}; {suggest_nearest(name.partition('/')[2], known)}"
    return ""


def explain_override_error(error: Exception, overrides: Sequence[str], chosen: Callable[[], dict[str, Any]]) -> str:
    """An error of Hydra as one line, in the addresses of the user.

    Args:
        error: that composing raised.
        overrides: as Hydra knows them, ``ADDRESS=VALUE``.
        chosen: the configuration of the line without the values that it sets; asked for where it is needed.
    """
    from dse.config.sweep_syntax import extract_first_statement, parse_knobs

    if override_text := describe_unparsable_override(overrides):
        return override_text
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    group = re.search(r"Could not (?:find|load) '([\w/]+)/([^']*)'", text)
    if group:
        where, _, folder = group[1].partition("/")
        name = f"{folder}/{group[2]}" if folder else group[2]
        known = {path.stem for path in (SHIPPED_CONF / where).glob("*.yaml")}
        from_hub = "; one of Hugging Face is read from its file: model.from_hf=FOLDER/config.json"
        online = from_hub if where == "model" and "/" in name else ""
        return f"{where}: no option {name!r}; {suggest_nearest(group[2].rpartition('/')[2], known)}{online}"
    repeated = "Multiple values for" in text or "appears more than once" in text
    if several := next((word for word in overrides if word.startswith("chip=[")), "") if repeated else "":
        return f"chip: one chip, not {several.removeprefix('chip=')}; use dse compare {several}, or chips of a study"
    twice = re.search(r"Multiple values for ([\w/]+@[\w.]+[\w])|(\S+@\S+) appears more than once", text)
    if twice:
        name = twice[1] or twice[2]
        instead = next((word.lstrip("+") for word in overrides if word.lstrip("+").startswith(f"{name}=")), f"{name}=NAME")
        return f"{name.partition('@')[2]}: its file sets one already; {instead}, without a +, replaces it"
    where = re.search(r"In '([^']+)': .*Cannot merge DictConfig with ListConfig", text)
    if where:
        return (
            f"{where[1]}: a list in the place of a constant or of a group of fields; several values of one are knobs of a space"
        )
    if "Config group override must be" in text:
        return _no_name(overrides) or extract_first_statement(error)
    key = re.search(r"Key '([^']+)' is not in struct.*?full_key: (\S+)", text) or re.search(
        r"Could not override '([^']+)'", text
    )
    if key:
        config, address = chosen(), key.groups()[-1]
        if address.startswith("space."):
            within = parse_knobs(config.get("space") or {})
            address_typed = next((f"space.{name}" for name in within if f"{address}.".startswith(f"space.{name}.")), "")
            if address_typed:
                another = f"'~{address_typed}' and '+{address_typed}=...' replace it"
                return f"{address_typed}: a knob already, to which an override adds nothing; {another}"
            hint = f"; {suggest_nearest(address.removeprefix('space.'), within)}" if within else ""
            return f"no knob {address!r} in this space; +{address}=... adds one{hint}"
        return _misspelt_text(address, config)
    if "is not a container" in text or "Error merging override" in text:
        return _kind_clash_text(overrides, chosen()) or extract_first_statement(error)
    return extract_first_statement(error)


def describe_broken_reference(config: dict[str, Any]) -> str:
    """Value that refers to a missing value or to itself; empty string if none does.

    Args:
        config: plain, with its references as they are written.
    """

    def trace_reference(address: str, passed: tuple[str, ...]) -> str:
        node: Any = config
        for part in address.split("."):
            if isinstance(node, str):  # a group that is another one
                return ""
            if not isinstance(node, dict) or part not in node:
                return (
                    f"{passed[-1]}: takes the value of {address}, which is not "
                    f"there; {suggest_nearest(part, _group_fields(node))}"
                )
            node = node[part]
        tie = TIE.fullmatch(node) if isinstance(node, str) else None
        if tie is None:
            return ""
        if address in passed:
            circle = passed[passed.index(address) :]
            return f"{address}: takes its value from itself ({' from '.join((*circle, address))}); set one of them to a value"
        return trace_reference(tie[1], (*passed, address))

    return next(filter(None, (trace_reference(address, ()) for address in _text_addresses(config))), "")


def _text_addresses(node: dict[str, Any], above: str = "") -> list[str]:
    """Addresses of all values that are text."""
    texts = [f"{above}{name}" for name, below in node.items() if isinstance(below, str)]
    groups = ((name, below) for name, below in node.items() if isinstance(below, dict))
    return texts + [address for name, below in groups for address in _text_addresses(below, f"{above}{name}.")]


def _no_name(overrides: Sequence[str]) -> str:
    """Which choice of a group is no name of a file; "" where all are."""
    for override in overrides:
        key, _, value = override.partition("=")
        named = value != "null" and re.fullmatch(r"\[.*\]|\w*[A-Za-z]\w*", value)
        if (SHIPPED_CONF / key).is_dir() and not named:
            files = sorted(path.stem for path in (SHIPPED_CONF / key).glob("*.yaml"))
            return f"{key}: {value} is not the name of a {key}; valid: {', '.join(files)}"
    return ""


def _kind_clash_text(overrides: Sequence[str], config: dict[str, Any]) -> str:
    """Which override puts a value where a group of fields stands, or one kind of value for another; "" where none does."""
    for override in overrides:
        address, _, value = override.lstrip("+").partition("=")
        if "@" in address or (SHIPPED_CONF / address).is_dir():
            continue
        at: Any = config
        for part in address.split("."):
            at = at.get(part) if isinstance(at, dict) else None
        if isinstance(at, dict) and not set(at) <= CONSTANT and not value.startswith("{") and value != "null":
            first = next(iter(at))
            return f"{address}: a group of fields ({', '.join(map(str, at))}), not {value}; set {address}.{first}=VALUE"
        if isinstance(at, dict) and set(at) <= CONSTANT and value.startswith("["):
            return f"{address}: one value, not {value}; a study tries several with +space.{address}=choice(VALUE,VALUE)"
        if isinstance(at, list) and not value.startswith("["):
            return f"{address}: a list, not {value}; write {address}=[VALUE,VALUE]"
    return ""


def _misspelt_text(address: str, config: dict[str, Any]) -> str:
    """What to write for an address that a configuration does not have."""
    *path, last = address.split(".")
    if address == "devices":
        return f"config: no field 'devices'; {DEVICES}"
    if "@" in address and (SHIPPED_CONF / address.partition("@")[0]).is_dir():
        return f"{address}: nothing chooses it yet; write +{address}=NAME"
    if usual := dict(PRESETS.values()).get(address):
        return f"config: no field {address!r}; it is a part of a chip, as in +{address}@chip.{address}={usual}"
    elsewhere = (
        len(path) == 1 and path[0] in config and not get_close_matches(last, _group_fields(config[path[0]]), cutoff=0.75)
    )
    ends = () if tuple(path) in NAMED else (address, last) if elsewhere else (address,)
    if longer := next(filter(None, (_similar_addresses(end, config, address) for end in ends)), None):
        return f"{'.'.join(path) or 'config'}: no field {address!r}; did you mean {' or '.join(longer)}?"
    if path in ([], ["workload"]) and (others := workloads_with_field(last)):
        which = f"{', '.join(others[:-1])} or {others[-1]}" if len(others) > 1 else others[0]
        return f"{'.'.join(path) or 'config'}: no field {address!r}; workload.{last} belongs to workload={which}"
    at: Any = config
    for depth, part in enumerate([*path, last]):
        if tuple(path[:depth]) in NAMED and part not in (at or {}):
            has = f"; it has {', '.join(map(str, at))}" if at else ""
            return f"{'.'.join(path[:depth])}: this study has no {part!r}; +{address}=... adds it{has}"
        if depth == len(path):
            break
        if not isinstance(at, dict) or part not in at:
            if path[:1] == ["chip"] and (parts := parts_with_address(address.removeprefix("chip."))):
                return f"chip: no field {address!r}; a part has it: {' or '.join(f'+part@chip={name}' for name in parts)}"
            path_text = ".".join(path[:depth])
            if path_text == "chip" and (usual := dict(PRESETS.values()).get(part)):
                return f"{address}: the chip has no {part}; add one, as +{part}@chip.{part}={usual}"
            return f"{path_text or 'config'}: no field {address!r}; {suggest_nearest(part, at if isinstance(at, dict) else ())}"
        at = at[part]
    if isinstance(at, dict) and isinstance(at.get(last), dict) and set(at[last]) <= CONSTANT:
        return f"{address}: one value, not a group of fields; write {address}=VALUE"
    if isinstance(at, dict) and last in at:
        return f"{address}: a group of fields; add one with +{address}.NAME=VALUE, take one away with ~{address}.NAME"
    if path and isinstance(at, dict) and len(path) + (path[0] == "chip") > 1 and _left_out(path, last, config):
        if path == ["chip"] and (usual := dict(PRESETS.values()).get(last)):
            return f"{address}: this chip leaves it out; +{last}@{address}={usual} sets it"
        return f"{address}: this {path[0]} leaves it out; +{address}=... sets it"
    if isinstance(at, dict) and not set(at) <= CONSTANT:
        pooled = path[:1] == ["mapping"] and last in SPLITS and config["chip"].get("network")
        return f"{'.'.join(path) or 'config'}: no field {address!r}; {NODE_HINT if pooled else suggest_nearest(last, at)}"
    return f"no field {address!r}; {'.'.join(path)} is a value"


def _group_fields(group: Any) -> tuple[str, ...]:
    """Fields of a group; none of one that is left out, or of a value."""
    return tuple(map(str, group)) if isinstance(group, dict) else ()


def _similar_addresses(end: str, config: dict[str, Any], typed: str) -> list[str]:
    """A few addresses of a configuration that end so, but for the one that was typed."""
    return [known for known in list_addresses(config) if known.endswith(f".{end}") and known != typed][:MOST_NAMED]


def workloads_with_field(field: str) -> list[str]:
    """Workloads that ship and have a field."""
    files = sorted((SHIPPED_CONF / "workload").glob("*.yaml"))
    return [path.stem for path in files if field in read_document(path).keys() - {"mapping"}]


def list_addresses(node: Any, above: str = "") -> list[str]:
    """Addresses of a configuration, of groups of fields too; of a mapping's phases, those of both."""
    if not isinstance(node, dict) or set(node) <= CONSTANT:
        return []
    within = {f"{above}{name}": below for name, below in node.items()}
    both = {
        name.replace("mapping.prefill", "mapping.both"): below for name, below in within.items() if name != "mapping.decode"
    }
    return [name for address, below in both.items() for name in (address, *list_addresses(below, f"{address}."))]


def _left_out(path: Sequence[str], last: str, config: dict[str, Any]) -> bool:
    """Whether the record at a path of a chip or mapping has a field, of which its file says nothing."""
    if not path or path[0] not in ROOTS:
        return False
    kind, at = ROOTS[path[0]], config[path[0]]
    if path == ["chip"]:
        parts = MACHINES[guess_machine(name for name, part in at.items() if part is not None)]
        return last in parts.needs or last in parts.may
    for name in path[1:]:
        spec = next((spec for spec in fields(kind) if spec.name == name), None)
        kinds = () if spec is None else spec.metadata.get("parts") or (record_type(spec.type),)
        at = at.get(name)
        if not kinds or kinds[0] is None or not isinstance(at, dict):
            return False
        kind = best_matching_kind(at, kinds)
    return any(spec.name == last and "refused" not in spec.metadata for spec in fields(kind))
