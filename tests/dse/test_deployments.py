"""Deployments on many dies: systems of whole rows, no more dies than there are, each as one can be asked for."""

import math

from dse.analysis.capacity import build_chip_query, parse_query
from dse.analysis.deployments import COLS, INSTANCES, PREFILL, ROWS, SPLITS, CandidateDeployment, InstanceKinds, find_candidates
from dse.evaluators.serving.slo_bounds import SloBounds
from dse.evaluators.serving.sustained_rate import pool_paces, sustained_rate_of_paces
from dse.space.fields import leaf_at
from dse.space.knobs import Space
from dse.space.workload import ServingLoad
from tests.samples import asked

WORDS = (
    "chip=h800_ep", "chip.dies.cols=4", "chip.nodes.size=4", "model=deepseek_v2_lite", "model.deepseek_v2_lite.layers=3",
    "workload=serving", "workload.requests=50", "workload.prompt=100", "workload.output=20",
)  # fmt: skip


def test_systems_have_whole_rows_of_no_more_dies_than_there_are() -> None:
    """Of twelve, which three rows of four are and no power of two is."""
    devices = 12
    usual = asked(*WORDS, "mapping.both.ep=4")
    (load,) = usual.workload.cases
    assert isinstance(load, ServingLoad)
    knobs = {
        "mapping.both.tp": "choice(1, 2)",
        "mapping.both.ep": "choice(4, 8)",
        "mapping.serving.max_batch_size": "choice(32)",
    }
    space = asked(*WORDS, *(f"+space.{address}='{knob}'" for address, knob in knobs.items())).space
    assert isinstance(space, Space)
    candidates, _ = find_candidates(InstanceKinds(usual, load), SloBounds(1.0, 0.1, 0.9), space, devices, apart=True)
    assert {candidate.apart for candidate in candidates} == {True, False}
    for deployment in candidates:
        assert deployment.devices <= devices
        assert deployment.devices == leaf_at(deployment.design, ROWS) * leaf_at(deployment.design, COLS)
        assert deployment.estimate.rate > 0
        again = asked(*WORDS, *deployment.words)
        assert again.base == deployment.design


def test_deployments_that_differ_in_their_instances_are_estimated_as_each_by_itself() -> None:
    """Those that are left are the best of their kind by either estimate."""
    words = ["chip=h200", "model=llama3_8b", "devices=9", "workload.prompt=900", "workload.output=90", "workload.ttft='1 s'"]
    query = parse_query([*words, "workload.tpot='20 ms'"])
    kinds, bounds, knobs = build_chip_query("h200", query, trust=False, count=200)
    every, _ = find_candidates(kinds, bounds, knobs, 9, apart=True, every=True)
    kept, _ = find_candidates(kinds, bounds, knobs, 9, apart=True)
    requests = kinds.load.requests
    for deployment in every:
        paces = pool_paces(deployment.pools, requests)
        assert deployment.estimate == sustained_rate_of_paces(deployment.pools, paces, tpot=bounds.tpot)
        assert deployment.unbound == sustained_rate_of_paces(deployment.pools, paces, tpot=math.inf).rate
        counts = [int(deployment.values.get(address, 0)) for address in (PREFILL, INSTANCES)]
        assert [pool.instances for pool in deployment.pools] == counts[-len(deployment.pools) :]

    def kind(deployment: CandidateDeployment) -> str:
        return repr([pair for pair in deployment.values.items() if pair[0] not in (INSTANCES, PREFILL)])

    left = [deployment for deployment in kept if deployment.apart]
    assert 0 < len(left) < sum(deployment.apart for deployment in every)
    for deployment in left:
        same = [other for other in every if kind(other) == kind(deployment)]
        ahead = [sum(rate(other) > rate(deployment) for other in same) for rate in (_estimated, _unbound)]
        assert min(ahead) < SPLITS


def _estimated(deployment: CandidateDeployment) -> float:
    return deployment.estimate.rate


def _unbound(deployment: CandidateDeployment) -> float:
    return deployment.unbound
