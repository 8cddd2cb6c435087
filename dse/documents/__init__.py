"""Documents that ``--json`` and ``dse mcp`` answer with, each declared once as a record.

The JSON of a document and its JSON Schema follow from the record.

Each document has a name and a version, as in ``"schema": "dse/evaluate/11"``. A change that adds, removes or renames a key, or
gives it another type, raises the version in ``STAMP``; `tests/dse/fingerprints.json` checks that.
"""

from dse.documents.records import Document, Schema, record_schema
from dse.space.errors import DesignError, suggest_nearest

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def document_types() -> dict[str, type[Document]]:
    """Documents by name, in the order of the list that ``dse schema`` prints."""
    from dse.documents.calibrate_document import CalibrateDocument
    from dse.documents.capacity_document import CapacityDocument
    from dse.documents.claims_document import ClaimsDocument
    from dse.documents.compare_document import CompareDocument
    from dse.documents.constants_document import ConstantsDocument
    from dse.documents.evaluate_document import EvaluateDocument, ShortlistDocument
    from dse.documents.explain_document import ExplainDocument
    from dse.documents.export_document import ExportDocument
    from dse.documents.fleet_document import FleetDocument
    from dse.documents.front_document import FrontDocument, RunDocument
    from dse.documents.list_document import ListDocument
    from dse.documents.reference_document import ReferenceDocument
    from dse.documents.robust_document import RobustDocument
    from dse.documents.sweep_document import SweepDocument
    from dse.documents.validate_documents import ValidateDocument, ValidationDocument
    from dse.documents.whynot_document import WhynotDocument

    declared: tuple[type[Document], ...] = (
        EvaluateDocument,
        ShortlistDocument,
        CompareDocument,
        SweepDocument,
        CapacityDocument,
        FleetDocument,
        ExplainDocument,
        FrontDocument,
        ConstantsDocument,
        RobustDocument,
        WhynotDocument,
        ValidateDocument,
        ValidationDocument,
        ClaimsDocument,
        CalibrateDocument,
        ListDocument,
        ReferenceDocument,
        RunDocument,
        ExportDocument,
    )
    return {document_name(document): document for document in declared}


def document_name(document: type[Document]) -> str:
    """Name of a document, without its version."""
    return document.STAMP.split("/")[1]


def build_schema(name: str) -> Schema:
    """JSON Schema of a document.

    Raises:
        DesignError: there is no such document.
    """
    documents = document_types()
    if name not in documents:
        raise DesignError(f"schema: no document {name!r}; {suggest_nearest(name, documents)}")
    stamp = documents[name].STAMP
    head = {"$schema": DIALECT, "$id": f"urn:mesh-dse:{name}:{stamp.rpartition('/')[2]}", "title": stamp}
    return {**head, **record_schema(documents[name])}
