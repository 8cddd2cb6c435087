"""Whatever is typed or written is answered: by metrics of exactly what was said, or by one line.

Hydra takes a tenth of a second to compose, so most draws go into a configuration that is composed. FUZZ=10000 pytest
tests/dse/test_fuzz.py draws ten thousand of those, and a tenth as many of each other kind. What was found is in corpus.txt.
"""

import copy
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dse.config.compose import CONF, compose
from dse.evaluators import evaluate
from dse.execution.study import Study, build_study
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves, leaf_at
from tests.samples import base

HERE = Path(__file__).parent
EXAMPLES = int(os.environ.get("FUZZ", "150"))
FUZZED = settings(max_examples=EXAMPLES // 10, suppress_health_check=list(HealthCheck), deadline=None)
MANY = settings(FUZZED, max_examples=EXAMPLES)

UNITS = {"": 1.0, "B": 1.0, "KiB": 1024.0, "MB": 1e6, "GB": 1e9, "GB/s": 1e9, "TB/s": 1e12, "us": 1e-6, "ms": 1e-3, "s": 1.0}
NUMBERS = st.one_of(
    st.integers(-3, 10**6).map(str),
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.sampled_from(["0", "-0", "010", "0x10", "0b1", "1_000", "1e2", "1E+2", ".5", "5.", "1e400", "12:30", "1,5", "٣", "½"]),
)
TEXTS = st.one_of(
    NUMBERS,
    st.builds("{} {}".format, NUMBERS, st.sampled_from(list(UNITS))),
    st.sampled_from(
        ["null", "~", "true", "yes", "off", "nan", "", "''", "[]", "[1,2]", "{}", "{a: 1}", "${seed}", "${oc.env:HOME}"]
    ),
    st.sampled_from(
        ["whole", "none", "ring", "int8", "range(1,3)", "choice(1,2)", "interval(1,2)", "../x", "a=b", "MISSING", "???"]
    ),
    st.text(max_size=12),
)


def addresses() -> list[str]:
    """Every address that a configuration has, groups and leaves."""

    def walk(node: Any, prefix: str) -> Iterator[str]:
        for key, value in node.items():
            yield f"{prefix}{key}"
            if isinstance(value, dict):
                yield from walk(value, f"{prefix}{key}.")

    config = {key: value for key, value in compose([]).items() if key not in ("overrides", "run_dir", "name", "store")}
    return list(walk(config, ""))


ADDRESSES = st.one_of(
    st.sampled_from(addresses()), st.sampled_from([a for a, _, _ in iterate_leaves(base())]), st.text(max_size=8)
)


def answered(*overrides: str) -> Study | None:
    """A study and its metrics, or None where one line refused it."""
    return built(lambda: compose(["+objectives.tpot=min", *overrides]))


def built(config: Callable[[], dict[str, Any]]) -> Study | None:
    """A study of a configuration and its metrics, or None where one line refused it."""
    try:
        study = build_study(config(), HERE)
        evaluate(stack_designs([study.question.base]), study.question.workload, fidelity=study.fidelity)
    except DesignError as error:
        line = str(error)
        assert line.strip()
        assert "\n" not in line
        return None
    return study


def said(text: str) -> float | str:
    """What a text says to a reader who knows numbers and units, and nothing of YAML."""
    text = re.sub(r"(?<=[0-9])_(?=[0-9])", "", text)
    result = re.fullmatch(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*", text, re.ASCII)
    if result and result[2] in UNITS:
        return float(result[1]) * UNITS[result[2]]
    return text.strip().strip("'\"")


def meant(design: Design, address: str, text: str) -> bool:
    value, wanted = leaf_at(design, address), said(text)
    if isinstance(value, str) or isinstance(wanted, str):
        return value == wanted
    return bool(np.isclose(value, wanted, rtol=1e-12, atol=0))


@pytest.mark.sampled
@given(ADDRESSES, TEXTS, st.sampled_from(["", "+", "++", "~"]))
@FUZZED
def test_an_override_is_obeyed_or_refused_in_one_line(address: str, text: str, prefix: str) -> None:
    check(f"{prefix}{address}={text}")


@pytest.mark.parametrize("line", (HERE / "corpus.txt").read_text().splitlines())
def test_what_was_found_stays_answered(line: str) -> None:
    check(line)


def check(line: str) -> None:
    """Obeyed: the leaf of the design that is named has the value that the text says."""
    answer = answered(line)
    address, _, text = line.lstrip("+").partition("=")
    if answer is not None and address in LEAVES and "${" not in text:  # an interpolation says another field's value
        assert meant(answer.question.base, address, text), (line, leaf_at(answer.question.base, address))


COMPOSED = compose(["+objectives.tpot=min"])


@pytest.mark.sampled
@given(ADDRESSES, st.one_of(TEXTS, st.deferred(lambda: JUNK)))
@MANY
def test_a_value_in_a_configuration_is_obeyed_or_refused_in_one_line(address: str, value: Any) -> None:
    config = copy.deepcopy(COMPOSED)
    *groups, last = address.split(".")
    inner: Any = config
    for group in groups:
        inner = inner.get(group) if isinstance(inner, dict) else None
    if not isinstance(inner, dict):
        return
    inner[last] = value
    wanted_built = built(lambda: config)
    if wanted_built is None or address not in LEAVES:
        return
    if isinstance(value, str):
        assert meant(wanted_built.question.base, address, value), (value, leaf_at(wanted_built.question.base, address))
    elif not isinstance(value, dict):
        assert leaf_at(wanted_built.question.base, address) == value


LEAVES = {name for name, _, _ in iterate_leaves(base())}
CHIP = yaml.safe_load((CONF / "chip/npu_dse.yaml").read_text())
PLACES = [
    ("cores",),
    ("l2", "size"),
    ("l2", "bandwidth"),
    ("hbm", "capacity"),
    ("hbm", "strided_row_overhead"),
    ("network", "ports"),
    ("power",),
]
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=4,
)


@pytest.mark.slow
@given(st.sampled_from(PLACES), TEXTS)
@FUZZED
def test_a_number_in_a_file_is_obeyed_or_refused_in_one_line(place: tuple[str, ...], text: str) -> None:
    """A chip's file with one value as somebody might write it, unquoted."""
    lines = ["defaults: [npu_dse, _self_]"]
    for depth, key in enumerate(place):
        lines.append("  " * depth + f"{key}:")
    written_path = written("\n".join(lines) + f" {{value: {text}, source: assumed, note: mine}}\n")
    if written_path is not None:
        value, wanted = leaf_at(written_path.question.base, ".".join(("chip", *place))), said(text)
        assert not isinstance(wanted, str), (text, value)
        assert np.isclose(value, wanted, rtol=1e-12, atol=0), (text, value)


@pytest.mark.slow
@given(st.one_of(JUNK, st.dictionaries(st.sampled_from(sorted(CHIP)), JUNK, max_size=3)))
@FUZZED
def test_a_file_of_anything_is_refused_in_one_line(content: Any) -> None:
    body = content | {"defaults": ["npu_dse", "_self_"]} if isinstance(content, dict) else content
    written(yaml.safe_dump(body, allow_unicode=True))


@pytest.mark.sampled
@given(st.binary(max_size=60))
@FUZZED
def test_a_file_of_bytes_is_refused_in_one_line(content: bytes) -> None:
    written(content)


def written(content: str | bytes) -> Study | None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chip/mine.yaml"
        path.parent.mkdir()
        path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        return answered(f"--config-dir={folder}", "chip=mine")
