"""Long contexts on a wafer, whose caches are in SRAM, beside dies with HBM."""

import pytest

from dse.space.parameter_counts import growing_values_per_token
from dse.studies.long_context.in_sram import LONGEST, MODELS, STEP, fastest_token_time, longest, make_question


@pytest.mark.sampled
@pytest.mark.parametrize("model", MODELS)
def test_the_longest_context_has_room_and_a_longer_one_has_not(model: str) -> None:
    most = longest(model, "wse3")
    assert STEP < most < longest(model, "h200") == LONGEST
    assert fastest_token_time(model, "wse3", most)
    assert not fastest_token_time(model, "wse3", most + STEP)


@pytest.mark.parametrize("model", MODELS)
def test_a_token_is_sooner_where_its_cache_is_in_sram(model: str) -> None:
    assert 0 < fastest_token_time(model, "wse3", STEP) < fastest_token_time(model, "h200", STEP) / 2


def test_a_latent_cache_has_fewer_values_and_ends_sooner_on_a_wafer() -> None:
    values = {model: growing_values_per_token(make_question(model, "h200", STEP).workload.cases[0].model) for model in MODELS}  # type: ignore[union-attr]
    assert values["deepseek_v2_lite"] < values["qwen3_8b"] / 4
    assert longest("deepseek_v2_lite", "wse3") < longest("qwen3_8b", "wse3")
