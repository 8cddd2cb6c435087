"""python -m tests.dse.fingerprints       # stores what the keys and types of new versions of documents are

What a version says never changes, so one that is stored is not written again: raise the version in `dse/documents`.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from dse.documents import build_schema, document_types

FILE = Path(__file__).with_name("fingerprints.json")


def stored() -> dict[str, str]:
    """By document and version."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def shape(node: Any) -> Any:
    """A schema without what is said for people, and without the order of keys, which says nothing."""
    if isinstance(node, dict):
        rest = {key: shape(value) for key, value in node.items() if not (key == "description" and isinstance(value, str))}
        return {**rest, "required": sorted(rest["required"])} if isinstance(rest.get("required"), list) else rest
    return [shape(value) for value in node] if isinstance(node, list) else node


def of(name: str) -> str:
    """Of keys and types of a document."""
    return hashlib.sha256(json.dumps(shape(build_schema(name)), sort_keys=True).encode()).hexdigest()


def main() -> int:
    """Adds what is new; refuses what changed."""
    stored_stamps, now = stored(), {document.STAMP: of(name) for name, document in document_types().items()}
    changed = [name for name in now if stored_stamps.get(name, now[name]) != now[name]]
    if changed:
        print(f"{', '.join(changed)}: not what it was; raise its version in dse/documents")
        return 1
    FILE.write_text(json.dumps(stored_stamps | now, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
