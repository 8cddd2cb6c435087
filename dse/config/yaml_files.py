"""Values of YAML files, each parsed once while it is unchanged.

What a file says before it is composed: chips of a study, the mapping that a chip names, presets that a file starts from.
Files of users are checked where they are composed (`dse.config.untrusted_files`); what cannot be read here says nothing, and
is refused there.
"""

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from dse.config.untrusted_files import MAX_FILE_BYTES

PARSED: dict[Path, tuple[tuple[int, int], bytes]] = {}
"""Values of files, pickled, with the state of the file."""

MAX_ENTRIES = 1024
"""Files that are kept; the oldest goes."""

SETTLED_NS = 50_000_000
"""Age from which on a file is kept: one that was just written may change again within a tick of its clock. [ns]"""


def file_state(path: Path) -> tuple[int, int]:
    """Time and size of a file, which show when it changes; zeros if there is no file."""
    try:
        state = path.stat()
    except OSError:
        return 0, 0
    return state.st_mtime_ns, state.st_size


def parse_yaml(text: str) -> Any:
    """Values of a text, as a configuration has them (``1e5`` is a number, a date is text).

    Raises:
        yaml.YAMLError: no YAML, or a name that is set twice.
    """
    from dse.config.hydra_internals import yaml_loader

    return yaml.load(text, Loader=yaml_loader())


def read_document(path: Path) -> dict[Any, Any]:
    """Fields of a YAML file, as a copy; empty if the file is missing or has no fields."""
    state = file_state(path)
    known = PARSED.get(path)
    if known is None or known[0] != state:
        known = state, _pickle_fields(path)
        if time.time_ns() - state[0] > SETTLED_NS:
            while len(PARSED) >= MAX_ENTRIES:
                PARSED.pop(next(iter(PARSED)))
            PARSED[path] = known
    copy: dict[Any, Any] = pickle.loads(known[1])
    return copy


def listed_defaults(document: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Entries of the defaults list of a file, as group and name.

    A group has its package, if one is written; a file without a group has an empty string.

    >>> list(listed_defaults({"defaults": ["npu_dse", "_self_", {"override /part@_here_": "l2"}, {"chip": None}]}))
    [('', 'npu_dse'), ('', '_self_'), ('part@_here_', 'l2'), ('chip', None)]
    """
    listed = document.get("defaults")
    for entry in listed if isinstance(listed, list) else ():
        for group, name in entry.items() if isinstance(entry, dict) else [("", entry)]:
            yield str(group).removeprefix("override ").strip().removeprefix("/"), name


def _pickle_fields(path: Path) -> bytes:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            document = parse_yaml(stream.read(MAX_FILE_BYTES))
        return pickle.dumps(document if isinstance(document, dict) else {})
    except (OSError, yaml.YAMLError, RecursionError, ValueError):  # the last of numbers such as 0b
        return pickle.dumps({})
