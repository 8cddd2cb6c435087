"""A tabulated count is the function of each row's keys, however many keys there are and however far apart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.kernels.tabulated_counts import tabulate
from dse.space.array_math import Array


@pytest.mark.sampled
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("largest", [3, 5000, 10**7, 10**12])
@given(st.data())
def test_every_row_has_its_own_value(largest: int, together: bool, data: st.DataObject) -> None:
    keys = data.draw(st.lists(st.tuples(*[st.integers(0, largest)] * 3), min_size=1, max_size=20))
    calls = []

    def value(a: int, b: int, c: int) -> float:
        calls.append((a, b, c))
        return a + 2.0 * b - c

    def several(rows: Array) -> Array:
        return np.array([value(*row) for row in rows.tolist()])

    a, b, c = np.array(keys, dtype=float).T
    table_values = tabulate(value, several if together else None)
    for down in (b, b[::-1], b[:1]):
        found_table_values = table_values(a, down[:, None], c)
        assert found_table_values.shape == (len(down), len(keys))
        assert (found_table_values == a + 2.0 * down[:, None] - c).all()
    assert len(calls) == len(set(calls))
