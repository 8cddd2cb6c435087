"""Load and sample noise of a study's front, looked up in what pages keep and else worked out."""

import pandas as pd

from dse.execution.result_frame import DESIGN
from dse.execution.study import Study
from dse.explanations.sample_noise import BUDGET_S, OFFERED_LOAD, STREAMS, FrontSample, SampleRecord, sample_front
from dse.report.page_cache import PageCache, sample_question


def cached_front_sample(study: Study, frame: pd.DataFrame, kept: PageCache, *, seconds: float = BUDGET_S) -> FrontSample:
    """Load and margins of a study's front.

    Args:
        study: the study.
        frame: its designs, as `dse.execution.result_frame.combine_with_front` has them.
        kept: where designs may be known already, and where new ones go.
        seconds: what streams of designs that are not known may take.
    """
    metrics = [bound.metric for bound in study.bounds]

    def find_record(key: str) -> SampleRecord | None:
        record: SampleRecord | None = kept.find(sample_question(key, study.fidelity, metrics, STREAMS))
        return record

    def keep_record(key: str, record: SampleRecord) -> None:
        kept.keep(sample_question(key, study.fidelity, metrics, STREAMS), record)

    return sample_front(study, frame, find_record, keep_record, seconds=seconds)


def with_offered_load(frame: pd.DataFrame, sample: FrontSample) -> pd.DataFrame:
    """Designs with the offered load of the front, where the study did not store it.

    Args:
        frame: designs of a study.
        sample: load of its front.
    """
    loads = {design: known.load for design, known in sample.designs.items() if known.load == known.load}
    if not loads:
        return frame
    new = frame[DESIGN].map(loads)
    return frame.assign(**{OFFERED_LOAD: frame[OFFERED_LOAD].fillna(new) if OFFERED_LOAD in frame else new})
