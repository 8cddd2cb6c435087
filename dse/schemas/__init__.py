"""What every ``--json`` prints, and tools of ``dse mcp`` answer, as JSON Schema (draft 2020-12): one document a name,
each with a version.

A document says at its top which it is, as in ``"schema": "dse/evaluate/8"``. Whoever adds, removes or renames a key, or gives
it another type, raises the version here; `tests/dse/fingerprints.json` holds it to that.
"""

from collections.abc import Mapping
from typing import Any

from dse.schemas import design, measured, study
from dse.schemas.words import Schema, closed, document, named
from dse.space.errors import DesignError, nearest

DIALECT = "https://json-schema.org/draft/2020-12/schema"

EVALUATE = 8
FRONT = 3

SHORTLIST: Schema = closed(
    {"designs": named(document(f"dse/evaluate/{EVALUATE}", design.EVALUATE), "by name, in the order of the file")},
    "the designs of a shortlist, each as dse evaluate has it",
)

DOCUMENTS: dict[str, tuple[int, str, Schema]] = {
    "evaluate": (EVALUATE, "dse evaluate --json", design.EVALUATE),
    "shortlist": (8, "dse evaluate --json --from FILE", SHORTLIST),
    "compare": (5, "dse compare --json", design.COMPARE),
    "capacity": (10, "dse capacity --json", design.CAPACITY),
    "explain": (3, "dse explain --json, of a design", study.EXPLAIN),
    "front": (FRONT, "dse explain --json STUDY", study.FRONT),
    "whynot": (3, "dse whynot --json", study.WHYNOT),
    "validate": (2, "dse validate --json FILE", measured.VALIDATE),
    "validation": (2, "dse validate --json [STUDY]", measured.VALIDATION),
    "claims": (1, "dse validate --claims --json [PAPER]", measured.CLAIMS),
    "calibrate": (1, "dse calibrate --json", measured.CALIBRATE),
    "list": (1, "dse list --json", study.LIST),
    "run": (3, "dse mcp --allow-run, tool run", study.ran(document(f"dse/front/{FRONT}", study.FRONT))),
}
"""By name: version, what prints it, what is in it beside its name."""


def stamp(name: str) -> str:
    """The name and version that a document says at its top.

    >>> stamp("evaluate")
    'dse/evaluate/8'
    """
    return f"dse/{name}/{DOCUMENTS[name][0]}"


def stamped(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """A document: its name and version, then what it says."""
    return {"schema": stamp(name), **data}


def published(name: str) -> Schema:
    """The schema of a document.

    Raises:
        DesignError: there is no such document.
    """
    if name not in DOCUMENTS:
        raise DesignError(f"schema: no document {name!r}; {nearest(name, DOCUMENTS)}")
    version, _, body = DOCUMENTS[name]
    return {"$schema": DIALECT, "$id": f"urn:mesh-dse:{name}:{version}", "title": stamp(name), **document(stamp(name), body)}
