"""How tokens spread over experts: evenly, as drawn, or as a file says, and what the busiest die gets of them."""

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from dse.config.expert_routing_file import read_expert_shares
from dse.evaluators.graph.expert_loads import busiest_core_load, experts_touched, loads_with_copies, rows_per_core, sampled_rows
from dse.space.errors import DesignError
from dse.space.model import ExpertLayers
from tests.samples import asked

COUNTS = st.lists(st.integers(0, 99), min_size=8, max_size=8).filter(any)


def experts(**more: object) -> ExpertLayers:
    return ExpertLayers(count=8, top_k=2, intermediate=64, **more)  # type: ignore[arg-type]


def written(folder: Path, layers: list[list[int]]) -> Path:
    path = folder / "counts.csv"
    rows = [
        f"{layer},{expert},{tokens}" for layer, given_layer in enumerate(layers) for expert, tokens in enumerate(given_layer)
    ]
    path.write_text("\n".join(["layer,expert,tokens", *rows]))
    return path


@settings(deadline=None, max_examples=30)
@given(st.lists(COUNTS, min_size=1, max_size=3), st.sampled_from([1, 2, 4, 8]), st.integers(0, 4))
def test_shares_of_a_file_are_those_of_its_counts(
    tmp_path_factory: pytest.TempPathFactory, layers: list[list[int]], cores: int, redundant: int
) -> None:
    model = asked("model=mixtral_8x7b").workload.cases[0].model
    expert_shares = read_expert_shares(written(tmp_path_factory.mktemp("counts"), layers), model, experts())
    for counts, expert_share in zip(layers, expert_shares, strict=True):
        assert sum(expert_share) == pytest.approx(min(2, sum(1 for count in counts if count)))
        assert all(share <= 1 for share in expert_share)
        ranked = np.argsort(counts, kind="stable")
        assert (np.diff(np.array(expert_share)[ranked]) >= -1e-12).all()
    loads = experts(load="file", shares=expert_shares)
    rows, read = busiest_core_load(loads, 1000.0, cores, redundant)
    mean = sum(map(sum, expert_shares)) / len(expert_shares) * 1000 / cores
    assert rows >= mean * (1 - 1e-9)
    assert rows >= busiest_core_load(loads, 1000.0, cores, redundant + 1)[0] * 0.5
    assert 0 < read <= min(rows, (8 + redundant) / cores + 1)
    parts = rows_per_core(loads, 1000.0, cores, redundant)
    assert parts is not None
    assert parts.sum() == pytest.approx(1)


@given(st.integers(1, 500), st.sampled_from([1, 2, 4, 8]))
def test_even_loads_touch_as_many_experts_as_there_are_rows(tokens: int, cores: int) -> None:
    rows, read = busiest_core_load(experts(load="even"), float(tokens), cores)
    assert rows == tokens * 2 / cores
    assert read == min(8 / cores, rows)
    assert experts_touched(experts(load="even"), float(tokens)) == min(8, 2 * tokens)


@settings(deadline=None)
@given(st.integers(1, 6000), st.integers(0, 3), st.floats(0, 1.5))
def test_a_draw_has_as_many_rows_as_tokens_ask_for_and_no_expert_twice(tokens: int, seed: int, skew: float) -> None:
    rows = sampled_rows(experts(load="sampled", seed=seed, skew=skew), float(tokens))
    assert rows.sum() == pytest.approx(2 * tokens)
    assert rows.max() <= tokens * (1 + 1e-12)
    assert (rows == sampled_rows(experts(load="sampled", seed=seed, skew=skew), float(tokens))).all()


def test_draws_of_many_tokens_come_to_what_is_expected() -> None:
    mean = np.mean([np.count_nonzero(sampled_rows(experts(load="sampled", seed=seed), 4.0)) for seed in range(400)])
    assert mean == pytest.approx(experts_touched(experts(), 4.0), rel=0.02)


@given(st.lists(st.floats(0.01, 9), min_size=1, max_size=9), st.integers(0, 9))
def test_copies_share_what_their_expert_has(loads: list[float], redundant: int) -> None:
    found_loads = loads_with_copies(np.array(loads), redundant)
    assert len(found_loads) == len(loads) + redundant
    assert found_loads.sum() == pytest.approx(sum(loads))
    assert found_loads.max() <= max(loads)


def test_links_carry_what_the_busiest_core_of_a_draw_gets() -> None:
    for seed in range(20):
        given_experts = experts(load="sampled", seed=seed)
        parts = rows_per_core(given_experts, 40.0, 4)
        assert parts is not None
        assert parts.max() * 80 == pytest.approx(busiest_core_load(given_experts, 40.0, 4)[0])


def test_a_file_is_said_by_the_workload() -> None:
    with pytest.raises(DesignError, match=r"workload\.expert_load=FILE"):
        asked("model=mixtral_8x7b", "+model.mixtral_8x7b.experts.load=file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layer,expert\n0,1", "has no columns"),
        ("layer,expert,tokens\n0,8,1", "no expert 8"),
        ("layer,expert,tokens\n0,1,-3", "line 2: tokens '-3'"),
        ("layer,expert,tokens\n0,1,nan", "line 2: tokens 'nan'"),
        ("layer,expert,tokens\n0,1,0", "layer 0: no tokens"),
        ("layer,expert,tokens\n", "has 0 layers"),
        ("layer,expert,tokens\n" + "\n".join(f"{layer},0,1" for layer in range(33)), "has 33 layers"),
    ],
)
def test_a_file_of_anything_else_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(text)
    with pytest.raises(DesignError, match=r"workload\.expert_load") as refused:
        asked("model=mixtral_8x7b", f"workload.expert_load={path}")
    assert message in str(refused.value)
