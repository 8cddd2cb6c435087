"""A scheduling policy of another package."""

from dse.evaluators.serving.scheduling_policy import SchedulingPolicy

HASTY = SchedulingPolicy(mixed=True, chunked=True, tokens=64)
