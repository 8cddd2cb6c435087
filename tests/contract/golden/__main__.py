"""python -m tests.contract.golden       # writes the golden set again; raise evaluators.evaluation.PHYSICS first."""

from tests.contract.golden import write

write()
