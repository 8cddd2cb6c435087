"""Completion in the shell: commands, flags, studies, keys of overrides, and values.

Names that need heavy imports (keys, metrics, options) are listed once and kept in the user's cache, until a source that
declares them changes; presets and studies are read from their folders each time.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dse.commands.cli_options import COMMANDS, known_flags, list_flags
from dse.commands.command_record import list_run_names
from dse.space.errors import DesignError, suggest_nearest

PACKAGE = Path(__file__).parents[1]

MOST_KEYS = 40
"""Keys that are offered whole; of more, the next part of each is offered."""

PHASES = ("mapping.prefill.", "mapping.decode.")

SCRIPTS = {
    "bash": """\
_dse_completion() {
    local IFS=$'\\n'
    COMPREPLY=($(COMP_LINE="${COMP_LINE:0:COMP_POINT}" dse -sc query=bash 2>/dev/null))
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} != *[=.] ]]; then compopt +o nospace; fi
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
complete -o nospace -o default -F _dse_completion dse
""",
    "zsh": """\
_dse_completion() {
    local -a words_found
    words_found=(${(f)"$(COMP_LINE="${LBUFFER}" dse -sc query=zsh 2>/dev/null)"})
    compadd -S '' -- $words_found
}
compdef _dse_completion dse
""",
    "fish": """\
complete -c dse -f -a '(env COMP_LINE=(commandline -cp) dse -sc query=fish 2>/dev/null)'
""",
}
"""What a shell runs to complete, by the shell's name."""

UNINSTALL = {"bash": "complete -r dse\n", "zsh": "compdef -d dse\n", "fish": "complete -c dse -e\n"}


def run_completion(arguments: list[str]) -> int:
    """Answer ``dse -sc install=SHELL``, ``uninstall=SHELL`` or ``query=SHELL``.

    The line to complete is in ``COMP_LINE``.

    Raises:
        DesignError: no such request, or a shell that is not known.
    """
    words = [word for word in arguments if word not in ("-sc", "--shell-completion")]
    verb, _, shell = (words or [""])[0].partition("=")
    if verb not in ("install", "uninstall", "query") or len(words) != 1:
        raise DesignError('--shell-completion: expected install=SHELL or uninstall=SHELL, as in eval "$(dse -sc install=bash)"')
    if shell not in SCRIPTS:
        raise DesignError(f"--shell-completion: no shell {shell!r}; {suggest_nearest(shell, SCRIPTS)}")
    if verb == "query":
        print("\n".join(complete_line(os.environ.get("COMP_LINE", ""))))
    else:
        print((SCRIPTS if verb == "install" else UNINSTALL)[shell], end="")
    return 0


def complete_line(line: str) -> list[str]:
    """Words that may stand at the end of a command line, whole, in order.

    Args:
        line: what is typed up to the cursor; its last word is completed, which is empty after a space.
    """
    words = line.split()
    current = "" if not line or line[-1].isspace() else words.pop()
    if not words:
        return _matching(["dse"], current)
    if len(words) == 1:
        return _matching([*COMMANDS, "help", "--help", "--version"], current)
    name = words[1]
    if name == "help":
        return _matching(COMMANDS, current)
    if name not in COMMANDS:
        return []
    if current.startswith("-"):
        flag, equals, value = current.partition("=")
        if equals:
            return [f"{flag}={word}" for word in _flag_values(name, flag, value)]
        return _matching(list_flags(name), current)
    if len(words) > 2 and _takes_value(name, words[-1]):
        return _flag_values(name, words[-1], current)
    return _complete_word(name, words[2:], current)


def _complete_word(name: str, before: list[str], current: str) -> list[str]:
    """Completions of a word that is no flag: a name, a key, or a key's value."""
    key, equals, value = current.partition("=")
    if equals:
        return [f"{key}={word}" for word in _key_values(name, key, value)]
    names = _positional_names(name, before)
    keys = _next_parts(_keys(name), current) if COMMANDS[name].hydra and current else []
    return [*_matching(names, current), *keys]


def _positional_names(name: str, before: list[str]) -> list[str]:
    """Names that a command takes as bare words."""
    if name == "figure" and any("=" not in word or word.startswith("study=") for word in before):
        return list(_kept_names()["figures"])
    if name == "list":
        return [] if before else list(_kept_names()["kinds"])
    if name == "schema":
        return list(_kept_names()["documents"])
    return study_names() if COMMANDS[name].studies else []


def study_names() -> list[str]:
    """Names of studies that ship, are in ./studies, or ran here."""
    folders = (PACKAGE / "studies", Path("studies"))
    return sorted({*(path.parent.name for folder in folders for path in folder.glob("*/study.yaml")), *list_run_names()})


def _takes_value(name: str, flag: str) -> bool:
    return any(flag in known.names and known.value and not known.optional for known in known_flags(name))


def _flag_values(name: str, flag: str, current: str) -> list[str]:
    """Values of a flag that begin like what is typed; none where nothing lists them, as of files."""
    completes = next((known.completes for known in known_flags(name) if flag in known.names), "")
    if completes == "metrics":
        return _matching(_kept_names()["metrics"], current)
    if completes == "days":
        return _matching(_presets("day"), current)
    return _matching(completes.split(), current)


def _keys(name: str) -> list[str]:
    """Keys of overrides, each with its equals sign."""
    groups = [path.name for path in (PACKAGE / "conf").iterdir() if path.is_dir() and not path.name.startswith("_")]
    own = _kept_names()["capacity"] if name == "capacity" else []
    studies = ["study"] if COMMANDS[name].studies else []
    return [f"{key}=" for key in sorted({*groups, *own, *studies, *_kept_names()["keys"]})]


def _next_parts(keys: Iterable[str], current: str) -> list[str]:
    """Keys that begin like what is typed; of very many, up to the next dot.

    >>> _next_parts(["chip.l2.size=", "chip.l2.ways=", "model="], "chip.l")
    ['chip.l2.size=', 'chip.l2.ways=']
    """
    plus = current[: len(current) - len(current.lstrip("+~"))]
    start = current.removeprefix(plus)
    keys_found = _matching(keys, start)
    if len(keys_found) > MOST_KEYS:
        ends = ((key, key.find(".", len(start))) for key in keys_found)
        keys_found = list(dict.fromkeys(key[: end + 1] if end >= 0 else key for key, end in ends))
    return [f"{plus}{key}" for key in keys_found]


def _key_values(name: str, key: str, value: str) -> list[str]:
    """Values of a key, after what is typed of a list: presets, studies, options, metrics, or directions."""
    address = key.lstrip("+~")
    listed, last = re.fullmatch(r"((?:.*[\[,(])?)(.*)", value, re.DOTALL).groups()  # type: ignore[union-attr]
    if address == "study":
        values = study_names()
    elif (PACKAGE / "conf" / address.partition("@")[0]).is_dir():
        values = _presets(address.partition("@")[0])
    elif address in ("chips", "mappings"):
        values = _presets(address[:-1])
    elif address.startswith("objectives."):
        values = ["min", "max"]
    else:
        values = _kept_names()["options"].get(address, [])
    return [f"{listed}{word}" for word in _matching(values, last)]


def _presets(group: str) -> list[str]:
    """Names of the files of a group of the configuration."""
    return sorted(path.stem for path in (PACKAGE / "conf" / group).glob("*.yaml") if not path.stem.startswith("_"))


def _matching(words: Iterable[str], start: str) -> list[str]:
    return [word for word in words if word.startswith(start)]


def _kept_names() -> dict[str, Any]:
    """Names that take heavy imports to list, from the user's cache where it is of these sources."""
    sources = sorted(
        [
            *(PACKAGE / "space").resolve().glob("*.py"),
            *(PACKAGE / "documents").glob("*.py"),
            PACKAGE / "evaluators/accounting/metrics.py",
            PACKAGE / "execution/study_settings.py",
            Path(__file__),
        ]
    )
    states = [(str(path), path.stat().st_mtime_ns) for path in sources]
    stamp = hashlib.blake2b(repr(states).encode(), digest_size=8).hexdigest()
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "mesh-dse"
    file = folder / f"completion-{stamp}.json"
    try:
        kept: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        kept = _list_names()
        _keep_names(file, kept)
    return kept


def _keep_names(file: Path, kept: dict[str, Any]) -> None:
    """Write names to the cache, in the place of those of other sources; nothing where it cannot be written."""
    from dse.terminal.atomic_files import write_atomically

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        for old in file.parent.glob("completion-*.json"):
            old.unlink(missing_ok=True)
        with write_atomically(file) as place:
            place.write_text(json.dumps(kept))
    except (OSError, DesignError):
        return


def _list_names() -> dict[str, Any]:
    """Names from the records that declare them."""
    from dse.analysis.capacity import QUERY_OPTIONS
    from dse.config.question import SHAPE
    from dse.documents import document_types
    from dse.evaluators import fidelity_names
    from dse.evaluators.accounting.metrics import SHIPPED
    from dse.execution.study_settings import GROUPS
    from dse.reference.catalogue import KINDS
    from dse.reference.settings import declared_settings
    from dse.report.figures import FIGURES
    from dse.space.chip import Chip
    from dse.space.mapping import Mapping
    from dse.space.workload_settings import SETTINGS

    records = [("chip", Chip), ("mapping", Mapping), *GROUPS.items(), *(("workload", record) for record in SETTINGS.values())]
    settings = [setting for address, record in records for setting in declared_settings(record, address)]
    options: dict[str, list[str]] = {"fidelity": list(fidelity_names())}
    for setting in settings:
        words = [*(setting.spec.metadata.get("options") or ()), *setting.spec.metadata.get("words", ())]
        words += ["true", "false"] * ("flag" in setting.spec.metadata)
        for address in _typed_addresses(setting.address):
            options[address] = list(dict.fromkeys([*options.get(address, []), *map(str, words)]))
    keys = {address for setting in settings for address in _typed_addresses(setting.address)}
    keys |= {*SHAPE, *(f"objectives.{name}" for name in SHIPPED), *(f"constraints.{name}" for name in SHIPPED)}
    return {
        "keys": sorted(keys),
        "options": {address: words for address, words in options.items() if words},
        "metrics": sorted(SHIPPED),
        "documents": list(document_types()),
        "figures": list(FIGURES),
        "kinds": list(KINDS),
        "capacity": list(QUERY_OPTIONS),
    }


def _typed_addresses(address: str) -> list[str]:
    """Addresses as they are typed: a setting of a phase also for both."""
    both = [f"mapping.both.{address.removeprefix(phase)}" for phase in PHASES if address.startswith(phase)]
    return [address, *both]
