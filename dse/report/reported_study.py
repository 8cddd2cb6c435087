"""A study with its results, as reports and figures take it."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from dse.execution.screen import ScreenResult
from dse.execution.study import Study
from dse.execution.verify import Verification


@dataclass(frozen=True)
class ReportedStudy:
    """One study with its results for a report.

    Attributes:
        frame: as `dse.execution.result_frame.combine_with_front` has it.
        runs: as the store has them, oldest first.
        verified: what was evaluated once more, at a higher fidelity.
    """

    study: Study
    frame: pd.DataFrame
    screened: ScreenResult | None
    runs: list[dict[str, Any]]
    verified: Verification | None = None
