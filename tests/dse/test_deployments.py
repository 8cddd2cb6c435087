"""Deployments on many dies: systems of whole rows, no more dies than there are, each as one can be asked for."""

from dse.analysis.deployments import COLS, ROWS, InstanceKinds, find_candidates
from dse.evaluators.serving.slo_bounds import SloBounds
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
