from pathlib import Path

import pytest

from evaluators.serving.lengths import draw, read
from space.errors import DesignError

SAMPLE = Path(__file__).resolve().parent.parent / "lengths.csv"
SHARED = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "traces"


def test_the_same_seed_draws_the_same_requests() -> None:
    assert draw(SAMPLE, 8, seed=3) == draw(SAMPLE, 8, seed=3)


def test_bad_rows_are_named_together(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("prompt,output\n5,5\n0,3\nx,1\n7,-2\n")
    with pytest.raises(DesignError, match=r"row 3.*row 4.*row 5"):
        read(path)


def test_an_unknown_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("in,out\n5,5\n")
    with pytest.raises(DesignError, match="expected num_prefill_tokens"):
        read(path)


@pytest.mark.skipif(not SHARED.exists(), reason="the traces are not beside this checkout")
def test_a_public_trace_in_vidurs_columns_is_read() -> None:
    pairs = read(SHARED / "sharegpt_8k_lengths_llama2.csv")
    assert len(pairs) == 30731
    assert sum(prompt for prompt, _ in pairs) / len(pairs) == pytest.approx(2340.0, abs=0.1)
