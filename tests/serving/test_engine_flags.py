"""Flags of inference engines: what is written is read back, and what has no flag is named."""

import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.analysis.engine_arguments import launch_settings
from dse.analysis.engine_flags import (
    DTYPES,
    TABLES,
    LaunchSettings,
    read_line,
    unmatched_settings,
    write_line,
    write_options,
)
from dse.space.errors import DesignError
from tests.samples import asked

LOAD = "workload=serving workload.rate=2Hz workload.requests=20"
DEGREES = st.sampled_from([1, 2, 4, 8])


def _engine(name: str) -> Any:
    preset = {"vllm": "vllm_v1", "sglang": "sglang", "tensorrt_llm": "trtllm_v1"}[name]
    return asked("chip=h200", "model=llama3_8b", *LOAD.split(), f"inference_engine={preset}").base.mapping.inference_engine


ENGINES = {name: _engine(name) for name in TABLES}


@st.composite
def launches(draw: st.DrawFn, name: str) -> LaunchSettings:
    """Settings that an engine has words for."""
    table = TABLES[name]
    dp = draw(DEGREES)
    tp = 1 if name == "tensorrt_llm" and dp > 1 else draw(DEGREES)
    ep = draw(st.sampled_from([1, tp * dp] if tp * dp > 1 else [1])) if dp == 1 else tp * dp
    activations = draw(st.sampled_from(["bf16", "fp16"]))
    longest = draw(st.integers(128, 32768))
    chunked = draw(st.booleans())
    return LaunchSettings(
        model="Llama-3-8B",
        engine=replace(ENGINES[name], memory_share=draw(st.integers(10, 99)) / 100),
        tp=tp,
        pp=draw(DEGREES),
        ep=ep,
        dp=dp,
        instances=draw(st.integers(1, 5)),
        requests=draw(st.integers(1, 1024)),
        tokens=draw(st.integers(1, 16384)) if chunked else draw(st.integers(longest, 65536)),
        longest=longest,
        block_size=draw(st.sampled_from([16, 32, 64])),
        chunked=chunked,
        prefixes=draw(st.booleans()),
        role=draw(st.sampled_from(["", "prefill", "decode"])),
        weights=draw(st.sampled_from([activations, *table.weights])),
        kv=draw(st.sampled_from([activations, *table.kv])),
        activations=activations,
        drafted=draw(st.integers(0, 3)),
    )


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_what_is_written_is_read_back(name: str, data: st.DataObject) -> None:
    launch, table = data.draw(launches(name)), TABLES[name]
    options = write_options(launch, table)
    line = write_line(launch, table, "options.yaml" if options else "")
    engine, found = read_line(f"{line}   # 2 of these", yaml.safe_load(yaml.safe_dump(options)))
    assert engine == name
    expected = {**launch._asdict(), "memory_share": pytest.approx(launch.memory_share)}
    del expected["engine"], expected["instances"]
    if name == "tensorrt_llm" and launch.role == "":
        assert "cache_transceiver_config" not in options
    assert {key: found[key] for key in expected} == expected
    assert not [note for note in unmatched_settings(launch, table) if "drafted" not in note]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("words", ["mapping.both.tp=2", "mapping.both.tp=4 mapping.serving.max_batch_size=48"])
def test_a_design_that_was_written_is_the_design_that_is_read(name: str, words: str) -> None:
    preset = {"vllm": "vllm_v1", "sglang": "sglang", "tensorrt_llm": "trtllm_v1"}[name]
    base = f"chip=h200 model=llama3_8b {LOAD} inference_engine={preset}"
    question = asked(*base.split(), *words.split())
    (launch,) = launch_settings(question.base, question.workload.cases[0])
    table = TABLES[name]
    _, found = read_line(write_line(launch, table), write_options(launch, table))
    again = asked(
        *base.split(),
        f"mapping.both.tp={found['tp']}",
        f"mapping.serving.max_batch_size={found['requests']}",
        f"mapping.serving.max_batched_tokens={found['tokens']}",
        f"mapping.serving.block_size={found['block_size']}",
        f"mapping.precision.weights={found['weights']}",
        f"mapping.precision.kv={found['kv']}",
    )
    assert again.base == question.base


@pytest.mark.parametrize("name", TABLES)
def test_formats_without_a_word_are_named(name: str) -> None:
    question = asked("chip=h200", "model=llama3_8b", *LOAD.split(), "inference_engine=vllm_v1")
    (launch,) = launch_settings(question.base, question.workload.cases[0])
    notes = unmatched_settings(launch._replace(weights="int4_g128", kv="int8"), TABLES[name])
    assert [note.partition(":")[0] for note in notes] == ["weights int4_g128", "KV cache int8"]
    assert "int4_g128" not in write_line(launch._replace(weights="int4_g128"), TABLES[name])


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("ollama serve llama3", "starts no known engine"),
        ("vllm serve m --tensor-paralel-size 2", "did you mean '--tensor-parallel-size'"),
    ],
)
def test_lines_that_cannot_be_read_are_refused_in_a_line(line: str, hint: str) -> None:
    with pytest.raises(DesignError, match=hint):
        read_line(line)


def test_each_copy_of_attention_has_its_part_of_what_sglang_is_told() -> None:
    engine = ENGINES["sglang"]
    launch = LaunchSettings("m", engine, 1, 1, 8, 8, 1, 32, 1024, 4096, 16, True, True, "", "bf16", "bf16", "bf16")
    words = shlex.split(write_line(launch, TABLES["sglang"]))
    assert words[words.index("--max-running-requests") + 1] == "256"
    assert words[words.index("--chunked-prefill-size") + 1] == "8192"
    assert set(DTYPES) == {"bf16", "fp16", "fp32"}
