"""JSON Schemas (draft 2020-12) of all documents that ``--json`` and ``dse mcp`` answer with.

Each document has a name and a version, as in ``"schema": "dse/evaluate/10"``. A change that adds, removes or renames a key, or
gives it another type, raises the version here; `tests/dse/fingerprints.json` checks that.
"""

from collections.abc import Mapping
from typing import Any

from dse.schemas import accuracy_documents as measured
from dse.schemas import design_documents as design
from dse.schemas import study_documents as study
from dse.schemas.schema_builders import Schema, document_schema, map_schema, object_schema
from dse.space.errors import DesignError, suggest_nearest

DIALECT = "https://json-schema.org/draft/2020-12/schema"

EVALUATE_VERSION = 10
FRONT_VERSION = 5

SHORTLIST: Schema = object_schema(
    {
        "designs": map_schema(
            document_schema(f"dse/evaluate/{EVALUATE_VERSION}", design.EVALUATE), "by name, in the order of the file"
        )
    },
    "the designs of a shortlist, each as dse evaluate has it",
)

DOCUMENTS: dict[str, tuple[int, str, Schema]] = {
    "evaluate": (EVALUATE_VERSION, "dse evaluate --json", design.EVALUATE),
    "shortlist": (10, "dse evaluate --json --from FILE", SHORTLIST),
    "compare": (7, "dse compare --json", design.COMPARE),
    "capacity": (12, "dse capacity --json", design.CAPACITY),
    "fleet": (1, "dse fleet --json", design.FLEET),
    "explain": (5, "dse explain --json, of a design", study.EXPLAIN),
    "front": (FRONT_VERSION, "dse explain --json STUDY", study.FRONT),
    "constants": (1, "dse constants --json", study.CONSTANTS),
    "robust": (1, "dse robust --json", study.ROBUST),
    "whynot": (5, "dse whynot --json", study.WHYNOT),
    "validate": (3, "dse validate --json FILE", measured.VALIDATE),
    "validation": (3, "dse validate --json [STUDY]", measured.VALIDATION),
    "claims": (2, "dse validate --claims --json [PAPER]", measured.CLAIMS),
    "calibrate": (2, "dse calibrate --json", measured.CALIBRATE),
    "list": (2, "dse list --json", study.LIST),
    "run": (5, "dse mcp --allow-run, tool run", study.run_schema(document_schema(f"dse/front/{FRONT_VERSION}", study.FRONT))),
}
"""By name: version, what prints it, what is in it beside its name."""


def document_stamp(name: str) -> str:
    """Name and version that a document has in its key ``schema``.

    >>> document_stamp("evaluate")
    'dse/evaluate/10'
    """
    return f"dse/{name}/{DOCUMENTS[name][0]}"


def stamp_document(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """A document with its name and version first."""
    return {"schema": document_stamp(name), **data}


def build_schema(name: str) -> Schema:
    """JSON Schema of a document.

    Raises:
        DesignError: there is no such document.
    """
    if name not in DOCUMENTS:
        raise DesignError(f"schema: no document {name!r}; {suggest_nearest(name, DOCUMENTS)}")
    version, _, body = DOCUMENTS[name]
    return {
        "$schema": DIALECT,
        "$id": f"urn:mesh-dse:{name}:{version}",
        "title": document_stamp(name),
        **document_schema(document_stamp(name), body),
    }
