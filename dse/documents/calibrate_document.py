"""Records of the document of ``dse calibrate``: constants that were fitted to measured rows."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from dse.documents.records import Document, Record
from dse.documents.shared_records import PhysicsVersion
from dse.documents.validate_documents import Role


class ConstantRecord(Record):
    """A fitted constant, before and after."""

    address: str
    unit: Annotated[str, "of the numbers here"]
    before: float
    after: float
    interval: Annotated[tuple[float | None, float | None], "null where rows do not determine it"]
    range: Annotated[tuple[float | None, float | None], "null where an end is open"]
    determined: Annotated[str, "how well rows determine it, in words"]


class ErrorSpreadRecord(Record):
    """Spread of absolute relative errors."""

    rows: int
    median: float
    p90: float
    worst: float


class MeasuredRowRecord(Record):
    """A measured row, simulated before and after the fit."""

    id: str
    role: Annotated[Role, "what the row is for"]
    metric: str
    unit: Annotated[str, "of the numbers here"]
    measured: Annotated[tuple[float, float], "from and to"]
    before: Annotated[float | None, "simulated with the constants before; null if there is no result"]
    after: Annotated[float | None, "simulated with the fitted constants"]


class MeasuredRunRecord(Record):
    """A measured run, as a file of an engine, a client or a profiler tells it."""

    name: str
    source: Annotated[str, "program that wrote the file"]
    model: Annotated[str, "name in the file; empty if it has none"]
    notes: Annotated[Sequence[str], "figures that are not used, and why"]


class CalibrateDocument(Document):
    """Constants that were fitted to measured rows."""

    STAMP = "dse/calibrate/3"
    COMMAND = "dse calibrate --json"

    file: Annotated[str, "of rows"]
    physics: PhysicsVersion
    seed: int
    simulations: Annotated[int, "of rows"]
    overrides: Annotated[Sequence[str], "put before those of each row"]
    constants: Sequence[ConstantRecord]
    errors: Annotated[Mapping[str, ErrorSpreadRecord], "by role, before, after and held out"]
    warnings: Sequence[str]
    rows: Sequence[MeasuredRowRecord]
    runs: Annotated[Sequence[MeasuredRunRecord], "empty for a file of rows"]
    undetermined: Annotated[Mapping[str, str], "constants that the runs do not determine, with the reason"]
