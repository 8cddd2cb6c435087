"""One model of each structure stands for all: no model that is left out has anything that none which is taken has."""

from tests.presets import EVERY, picked, structure


def test_every_structure_has_a_model_that_is_taken() -> None:
    taken = picked()
    assert set(taken) <= set(EVERY)
    assert {structure(name) for name in taken} == {structure(name) for name in EVERY}
    assert len({structure(name) for name in taken}) == len(taken) or taken == EVERY
