"""A simulator of our own that is a service by HTTP, as ``fidelity=remote``; SIMULATOR_URL says where it is."""

import os

from dse.evaluators.external.service import ExternalService, service_evaluator
from dse.space.design import Design
from dse.space.workload import BatchCase, WorkloadCase

SERVICE = ExternalService(os.environ.get("SIMULATOR_URL", "http://127.0.0.1:8800/evaluate"), time_limit=60.0, tries=3)
"""Is posted the same document, and answers metrics in SI by name."""


def answers(design: Design, case: WorkloadCase) -> bool:
    """Batches of requests on dies with a software stack."""
    return isinstance(case, BatchCase) and design.mapping.stack is not None


REMOTE = service_evaluator("our simulator, a service", SERVICE, answers)
