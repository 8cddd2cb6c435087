"""Checks of untrusted files and stored overrides: none may run code or read beyond its folder.

Hydra instantiates `_target_`, takes settings of its own from any file that it composes, and OmegaConf resolves
`${name:...}` by functions, one of which reads the environment. Shipped files use none of these, so they are refused by name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.space.errors import DesignError
from dse.space.safe_text import mask_passwords

SHIPPED_STUDIES = (Path(__file__).parents[1] / "studies").resolve()
SHIPPED_CONF = (Path(__file__).parents[1] / "conf").resolve()

TRUST = "--trust"
"""The flag that takes files as they are."""

TRUST_HINT = "; refused in files from elsewhere: remove it from the file, or type the setting yourself"
"""How a refusal ends."""

MAX_FILE_BYTES = 1 << 18
"""Of a YAML file; the largest of ours has some 10 kB."""

MAX_YAML_NODES = 50_000
"""Of a YAML file with its aliases written out, and of a configuration with its interpolations."""

CODE_KEYS = frozenset({"hydra", "_target_"})
"""Names by which a file would set how Hydra works, or name code."""

NODE = re.compile(r"\$\{\.*[\w-]+(\.[\w-]+|\[\w+\])*\}")
"""An interpolation that is another field's value, and nothing else."""

ENTRY = re.compile(r"((override|optional)\s+)*/?[\w.-]+(/[\w.-]+)*(@[\w.-]+(:[\w.-]+)?)?")
"""A group of a defaults list, or a file."""

CHOICE = re.compile(r"([\w.-]+(/[\w.-]+)*|~)?")
"""What is chosen of a group."""

NUMBER = re.compile(r"[+-]?(0|[1-9][0-9_]*)")


def is_shipped(path: Path) -> bool:
    """Whether a file came with this program."""
    return any(path.resolve().is_relative_to(root) for root in (SHIPPED_STUDIES, SHIPPED_CONF))


def read_untrusted_yaml(path: Path, *, trust: bool) -> str:
    """Text of a YAML file; an error if it could run code.

    Args:
        path: of the file.
        trust: whether it may run code.

    Raises:
        DesignError: naming the file, the line and the key of what is not taken from strangers, unless trusted; or a whole
            number that YAML 1.1 reads otherwise than it looks: ``010`` is 8 to it, and ``12:30`` is 750.
    """
    import yaml

    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        text = content.decode("utf-8")
        if len(content) > MAX_FILE_BYTES:
            raise DesignError(f"{path}: more than {MAX_FILE_BYTES >> 10} KiB, larger than any configuration")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise DesignError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise DesignError(f"{path}: not YAML: {_first_lines(error)}") from None
    for key, node in _document_scalars(root, path):
        where = f"{path}, line {node.start_mark.line + 1}"
        if node.tag == "tag:yaml.org,2002:int" and not NUMBER.fullmatch(node.value):
            number = yaml.safe_load(node.value)
            raise DesignError(f"{where}: YAML reads {node.value} as {number}; write a decimal number")
        if not trust:
            _check_text(node.value, f"{where}, {key}")
    if not trust:
        _check_keys(root, path)
        _check_defaults(root, path)
    return text


def check_package(package: str | None, path: Path) -> None:
    """Refuse a header by which a file changes Hydra's own settings."""
    if package and _runs_code(package):
        raise _trust_error(f"{path}, @package {package}", "sets how Hydra works")


def check_stored_overrides(overrides: Iterable[Any], place: str) -> list[str]:
    """Check overrides from a store or an untrusted file: no flags, no code, no Hydra settings.

    Args:
        overrides: one a word.
        place: what they come from, for the message.

    Raises:
        DesignError: naming the place and the override.
    """
    groups = {path.name for path in SHIPPED_CONF.iterdir() if path.is_dir()}
    words = []
    for word in overrides:
        if not isinstance(word, str):
            raise DesignError(f"{place}: {word!r} is no override; an override is a text")
        key, _, value = word.partition("=")
        name = key.lstrip("+~")
        where = f"{place}, override {name}"
        if word.startswith("-"):
            raise _trust_error(where, "a flag")
        if _runs_code(name):
            raise _trust_error(where, "names code or sets how Hydra works")
        _check_text(name, where)
        for read in (value, value.replace("\\", "")):  # Hydra drops a backslash
            _check_text(read, where)
            if "_target_" in read:
                raise _trust_error(where, "names code")
            chosen = [part.strip("[]{}'\" ") for part in read.split(",")]
            if (name in groups or re.search(r"[@/]", name)) and any(_leaves_folder(part) for part in (name, *chosen)):
                raise _trust_error(where, "a file outside of its group")
        words.append(word)
    return words


def check_choices(choices: Mapping[str, Any]) -> None:
    """Refuse a choice of a file outside of its group's folder, which no check has seen."""
    for group, chosen in choices.items():
        for name in chosen if isinstance(chosen, list) else [chosen]:
            if _leaves_folder(group) or _leaves_folder(str(name)):
                raise DesignError(f"{group}: {name!r} is a file outside of its group; name its folder with --config-dir")


def check_plain(node: Any, address: str = "") -> None:
    """Refuse names of code in a composed configuration."""
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in entries:
        key_address = f"{address}.{key}" if address else str(key)
        if key == "_target_":
            raise _trust_error(key_address, "names code")
        check_plain(value, key_address)


def check_cluster(config: Mapping[str, Any], typed: Iterable[str]) -> None:
    """Refuse a Ray cluster that the user did not name: its answers run code here."""
    group = config.get("ray")
    address = group.get("address") if isinstance(group, Mapping) else None
    if address and not any(re.match(r"\+*ray(\.address)?=", word) for word in typed):
        raise DesignError(f"ray.address: {address!r} is from a file; type ray.address={address}")


PLACES = ("run_dir", "store", "screen.folder")
"""Settings that name a place which is written, or a server that is connected to."""


def check_places(config: Mapping[str, Any], typed: Iterable[str]) -> None:
    """Refuse a place outside of the current folder, or on a server, that only a file names."""
    words = list(typed)
    for address in PLACES:
        place = _value_at(config, address)
        name = str(config.get("name"))
        if place is None or (address == "run_dir" and place == f"runs/{name}" and not _leaves_folder(name)):
            continue
        if any(re.match(rf"\+*({re.escape(address)}|{re.escape(address.partition('.')[0])})=", word) for word in words):
            continue
        path = str(place).removeprefix("sqlite:///")
        if "://" in path:
            where = "connects to a server"
        elif not Path(path).resolve().is_relative_to(Path.cwd()):
            where = "is outside of the current folder"
        else:
            continue
        shown = mask_passwords(str(place))
        raise DesignError(f"{address}: {shown!r} is from a file and {where}; type {address}={shown}")


def _value_at(config: Mapping[str, Any], address: str) -> Any:
    value: Any = config
    for name in address.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _leaves_folder(path: str) -> bool:
    """Whether a path leaves the folder that it starts in."""
    return path.startswith("/") or "//" in path or ".." in path.split("/")


def _runs_code(name: str) -> bool:
    """Whether a name has a part by which a file would set how Hydra works, or name code."""
    return not CODE_KEYS.isdisjoint(re.split(r"[.@/:\s]+", name))


def _trust_error(where: str, what: str) -> DesignError:
    return DesignError(f"{' '.join(where.split())}: {what}{TRUST_HINT}")


def _document_scalars(root: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """The scalars of a document with the keys that they are at; aliases as often as they are used."""
    import yaml

    stack: list[tuple[str, Any]] = [] if root is None else [("", root)]
    for _ in range(MAX_YAML_NODES):
        if not stack:
            return
        key, node = stack.pop()
        if isinstance(node, yaml.MappingNode):
            names: set[Any] = set()
            for name, value in node.value:
                if isinstance(name.value, str) and name.value in names:
                    raise DesignError(f"{path}, line {name.start_mark.line + 1}: {name.value} is set twice; remove one of them")
                names |= {name.value} if isinstance(name.value, str) else set()
                stack += [(key, name), (f"{key}.{name.value}".lstrip(".")[-100:], value)]
        elif isinstance(node, yaml.SequenceNode):
            stack += [(key, value) for value in node.value]
        else:
            yield key, node
    if stack:
        raise DesignError(f"{path}: more than {MAX_YAML_NODES:,} values, larger than any configuration")


def _check_text(text: str, where: str) -> None:
    """Refuse interpolations but of another field alone."""
    if "${" in text and not NODE.fullmatch(text.strip("'\" ")):
        raise _trust_error(where, f"{text[:60]!r} may read what is not in the configuration")


def _check_keys(root: Any, path: Path) -> None:
    """Refuse keys by which a file would run code."""
    import yaml

    stack = [root]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):
            continue
        seen.add(id(node))
        stack += [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        for name, _ in node.value if isinstance(node, yaml.MappingNode) else []:
            where = f"{path}, line {name.start_mark.line + 1}"
            if not isinstance(name, yaml.ScalarNode):
                raise DesignError(f"{where}: a key is a group or a list; write a name")
            if _runs_code(name.value):
                raise _trust_error(f"{where}, {name.value}", "names code or sets how Hydra works")


def _check_defaults(root: Any, path: Path) -> None:
    """Refuse entries of the defaults list that are no files of groups."""
    import yaml

    listed = [value for name, value in root.value if name.value == "defaults"] if isinstance(root, yaml.MappingNode) else []
    for entry in [entry for sequence in listed if isinstance(sequence, yaml.SequenceNode) for entry in sequence.value]:
        for group, chosen in entry.value if isinstance(entry, yaml.MappingNode) else [(entry, None)]:
            names = chosen.value if isinstance(chosen, yaml.SequenceNode) else [chosen] if chosen is not None else []
            where = f"{path}, line {group.start_mark.line + 1}, defaults: {group.value}"
            if _runs_code(str(group.value)):
                raise _trust_error(where, "sets how Hydra works")
            for pattern, name in [(ENTRY, str(group.value)), *((CHOICE, str(name.value)) for name in names)]:
                if not pattern.fullmatch(name) or ".." in name:
                    raise _trust_error(where, f"{name[:60]!r} is not a file of a group")


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:3]) if lines else type(error).__name__
