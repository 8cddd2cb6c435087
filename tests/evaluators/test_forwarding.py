"""Cores that forward tokens between boxes are not there for what is computed meanwhile."""

import pytest

from tests.samples import metrics

WORDS = (
    "chip=h100_ep", "stack=measured_ep", "model=deepseek_v3", "chip.dies.rows=4", "mapping.both.ep=32",
    "mapping.both.experts.redundant=32", "workload.batch=[128]", "workload.prompt=2048", "workload.output=2",
    "workload.speculation=none",
)  # fmt: skip
HALVES = ("mapping.both.overlap=two_batch", "mapping.both.all_to_all=hierarchical")


def ttft(*more: str) -> float:
    return metrics(*WORDS, *more)["ttft"]


def test_forwarding_takes_cores_where_both_go_on_at_a_time() -> None:
    times = [ttft(*HALVES, f"mapping.stack.moe_all_to_all.cores={cores}") for cores in (0, 20, 60)]
    assert times[0] < times[1] < times[2]
    assert times[2] / times[0] < 132 / (132 - 60) * 1.001  # no more than the cores that are gone, where they bind all


@pytest.mark.parametrize("other", ["mapping.both.overlap=none", "mapping.both.all_to_all=direct"])
def test_forwarding_takes_none_where_it_is_alone_or_goes_straight(other: str) -> None:
    assert ttft(*HALVES, other, "mapping.stack.moe_all_to_all.cores=0") == ttft(
        *HALVES, other, "mapping.stack.moe_all_to_all.cores=60"
    )
