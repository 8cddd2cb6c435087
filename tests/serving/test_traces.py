import gzip
import json
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.serving.iteration_time import constant_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.scheduling_policy import POLICIES
from dse.evaluators.serving.simulator import InstancePool, simulate_serving
from dse.evaluators.serving.traces import TRACE_FORMATS, read_trace
from dse.space.errors import DesignError
from dse.space.requests import ARRIVAL_PROCESSES, Requests, make_requests

SAMPLE = Path(__file__).resolve().parent.parent / "lengths.csv"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"
HERE = pytest.mark.skipif(not SHARED.exists(), reason="the traces are not beside this checkout")

lengths = st.tuples(st.integers(1, 5000), st.integers(1, 900))
timed = st.lists(st.tuples(st.integers(1, 10_000_000), lengths), min_size=1, max_size=30)


def written(kind: str, rows: list[tuple[float, int, int, list[int]]]) -> str:
    """A file of a format, from seconds, lengths and hashes."""
    trace_format = TRACE_FORMATS[kind]
    if trace_format.lines == "jsonl":
        objects = [
            {trace_format.arrival: t / trace_format.unit, trace_format.prompt: prompt, trace_format.output: output}
            | ({trace_format.hashes: hashes} if trace_format.hashes else {})
            for t, prompt, output, hashes in rows
        ]
        return "".join(json.dumps(entry) + "\n" for entry in objects)
    times = [
        [f"2024-02-29 {int(t) // 3600:02}:{int(t) // 60 % 60:02}:{t % 60:010.7f}" if not trace_format.unit else repr(t)]
        for t, *_ in rows
    ]
    head = ",".join(
        ([trace_format.arrival] if trace_format.arrival else []) + ["other", trace_format.prompt, trace_format.output]
    )
    body = [
        ",".join([*(time if trace_format.arrival else []), "x", str(p), str(o)])
        for time, (_, p, o, _) in zip(times, rows, strict=True)
    ]
    return "\n".join([head, *body])


few = st.lists(st.integers(0, 1), min_size=1, max_size=70)


@given(st.lists(st.tuples(few, st.none() | few), min_size=1, max_size=8))
def test_tokens_themselves_name_blocks_by_all_before_them(
    tmp_path_factory: pytest.TempPathFactory, many: list[tuple[list[int], list[int] | None]]
) -> None:
    """As many leading blocks are equal as two requests have whole blocks of equal tokens; generated ones count."""
    rows = []
    for number, (prompt, output) in enumerate(many):
        row = {"input_toks": len(prompt), "output_toks": len(output or [1]), "arrival_time_ns": number, "input_tok_ids": prompt}
        rows.append(row | ({} if output is None else {"output_tok_ids": output}))
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = read_trace(path)
    prompts = [prompt + (output or []) for prompt, output in many]
    # so many blocks as a prompt would have with one that is not whole are those of the prompt alone
    wanted = [
        len(prompt if len(tokens) // 16 == -(-len(prompt) // 16) else tokens) // 16
        for tokens, (prompt, _) in zip(prompts, many, strict=True)
    ]
    if not len(trace.starts):
        assert not any(wanted)
        return
    assert trace.block == 16
    named = [trace.hashes[start:end].tolist() for start, end in pairwise(trace.starts)]
    assert [len(named_blocks) for named_blocks in named] == wanted
    for (named_blocks, tokens_here), (two, tokens_there) in product(zip(named, prompts, strict=True), repeat=2):
        alike = next(
            (k for k, (a, b) in enumerate(zip(tokens_here, tokens_there, strict=False)) if a != b),
            min(len(tokens_here), len(tokens_there)),
        )
        equal = next(
            (k for k, (a, b) in enumerate(zip(named_blocks, two, strict=False)) if a != b), min(len(named_blocks), len(two))
        )
        assert equal == min(alike // 16, len(named_blocks), len(two))
        assert set(named_blocks[equal:]).isdisjoint(two[equal:])


def test_tokens_count_as_far_as_they_are_said(tmp_path: Path) -> None:
    rows = [
        {"input_toks": 100, "output_toks": 40, "arrival_time_ns": 0, "input_tok_ids": list(range(count))}
        for count in (40, 0, 100)
    ]
    rows[0] |= {"output_tok_ids": list(range(40))}
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = read_trace(tmp_path / "trace.jsonl")
    assert np.diff(trace.starts).tolist() == [2, 0, 6]
    assert trace.hashes[:2].tolist() == trace.hashes[2:4].tolist()


@pytest.mark.sampled
@pytest.mark.parametrize("kind", TRACE_FORMATS)
@given(given_rows=timed)
def test_what_is_written_is_read(
    kind: str, given_rows: list[tuple[int, tuple[int, int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    at, rows = 0, []
    for number, (gap, (prompt, output)) in enumerate(given_rows):
        at += gap
        rows.append((at * 1e-3, prompt, output, [-1, number]))
    path = tmp_path_factory.mktemp("trace") / "trace"
    path.write_text(written(kind, rows))
    trace = read_trace(path)
    assert trace.prompt.tolist() == [row[1] for row in rows]
    assert trace.output.tolist() == [row[2] for row in rows]
    if TRACE_FORMATS[kind].arrival:
        assert trace.arrival == pytest.approx([row[0] - rows[0][0] for row in rows], abs=2e-7)
    else:
        assert not trace.has_times
    if TRACE_FORMATS[kind].hashes:
        shared, own = trace.hashes[::2], trace.hashes[1::2]
        assert len(set(shared)) == 1
        assert len({*own, shared[0]}) == len(rows) + 1


BAD = [
    ("arrival,prompt,output\n0,5,5\n1,0,3\n2,x,1\n3,7,-2\n4,2.5,1\n5,,1\n",
     r"row 3, column prompt: '0'.*row 4, column prompt: 'x'.*row 5, column output: '-2'.*row 6.*row 7, column.*: nothing"),
    ("arrival,prompt,output\n0,5,5\n2,5,3\n1,5,1\n", r"row 4, column arrival: '1' is earlier than the row above"),
    ("arrival,prompt,output\n0,5,5\n2,5,3\n2,5,1\n", r"row 4, column arrival: '2' is the same time as .*ticks"),
    ("arrival,prompt,output\n0,5,5\nsoon,5,3\nnan,1,1\n", r"row 3, column arrival: 'soon' is not a number; row 4"),
    ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,5,5\n",
     r"row 2, column TIMESTAMP: 'yesterday' is not a date and time"),
    ("arrival,prompt,output\n0,5\n", r"row 2, 2 columns, but the header has 3"),
    ("in,out\n5,5\n", "row 1: no known columns; the file has 2 other columns; known formats are .*num_prefill_tokens"),
    ('{"timestamp": 0, "input_length": 5}\n', "no known columns"),
    ('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": ["a"]}\n', "row 1, column hash_ids"),
    (
        '{"arrival_time_ns": 0, "input_toks": 1, "output_toks": 1, "input_tok_ids": [1, 2]}\n',
        "row 1, column input_tok_ids: 2 tokens, but input_toks is 1",
    ),
    (
        '{"arrival_time_ns": 0, "input_toks": 1, "output_toks": 1, "input_tok_ids": "x"}\n',
        "row 1, column input_tok_ids: 'x' is not a list of whole numbers",
    ),
    ('{"timestamp": 0, "input_length": 5, "output_length": 1}\n{"timestamp": 0, "inp', "row 2, not a JSON object"),
    ("arrival,prompt,output\n", "no requests"),
    ("arrival,prompt,output\n0,10000000000000,5\n", r"row 2, column prompt: '10000000000000' is above 2,147,483,647$"),
    (
        "arrival, prompt,Output\n0,5,5\n",
        "columns differ by spaces or capitals from known ones; rename 'Output' to 'output', ' prompt' to 'prompt'$",
    ),
    ("", "no known columns; the file has 0 other columns"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_input_is_one_line_with_row_and_column(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_text(text)
    with pytest.raises(DesignError, match=message) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_many_bad_rows_are_one_message_that_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("prompt,output\n" + "0,1\n" * 25)
    with pytest.raises(DesignError, match=r"row 11, .*; and 15 more \(workload.skip") as caught:
        read_trace(path)
    assert "row 12" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DesignError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DesignError, match="no UTF-8 text"):
        read_trace(tmp_path / "bytes")


def test_ticks_are_accepted_where_the_clock_is_coarse(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival,prompt,output\n0,5,5\n2,5,3\n2,5,1\n")
    assert read_trace(path, ticks=True).arrival.tolist() == [0, 2, 2]


def test_a_named_format_must_fit(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival,prompt,output\n0,5,5\n")
    with pytest.raises(DesignError, match="did you mean 'azure'"):
        read_trace(path, "azur")
    with pytest.raises(DesignError, match="no column TIMESTAMP"):
        read_trace(path, "azure")


@pytest.mark.sampled
@pytest.mark.parametrize("skip", ["zero_output", "zero_prompt", "zero"])
@given(drawn=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_rows_that_a_rule_skips_are_counted_and_all_else_is_as_without_them(
    skip: str, drawn: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With hashes, so that none of a skipped row is left."""
    passed = {"zero_output": lambda p, o: not o, "zero_prompt": lambda p, o: not p, "zero": lambda p, o: not (p and o)}[skip]
    kept = [place for place, lengths in enumerate(drawn) if not passed(*lengths)]
    rows = [(7.0 + place, prompt, output, [-1, place]) for place, (prompt, output) in enumerate(drawn)]
    folder = tmp_path_factory.mktemp("trace")
    (folder / "whole").write_text(written("mooncake", rows))
    (folder / "kept").write_text(written("mooncake", [rows[place] for place in kept]))
    bad = [place for place in kept if 0 in drawn[place]]
    if bad or not kept:
        with pytest.raises(DesignError, match=f"row {bad[0] + 1}, " if bad else f"no requests; {len(drawn)} rows were skipped"):
            read_trace(folder / "whole", skip=skip)
        return
    trace, expected = read_trace(folder / "whole", skip=skip), read_trace(folder / "kept")
    assert trace.skipped == len(drawn) - len(kept)
    assert trace.digest == expected.digest
    assert trace.rows.tolist() == [place + 1 for place in kept]


def test_as_many_are_read_as_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("Timestamp,Model,Request tokens,Response tokens\n5,m,8,0\n5,m,9,2\n5,m,7,1\n9,m,none,3\n")
    trace = read_trace(tmp_path / "trace", skip="zero_output", most=2)
    assert (trace.prompt.tolist(), trace.arrival.tolist(), trace.skipped) == ([9, 7], [0.0, 0.0], 1)
    with pytest.raises(DesignError, match="row 5, column Request tokens: 'none'"):
        read_trace(tmp_path / "trace", skip="zero_output")
    with pytest.raises(DesignError, match="did you mean 'zero_output'"):
        read_trace(tmp_path / "trace", skip="zero_outputs")


def test_conversations_have_tokens_where_somebody_says_how_many_characters_one_is(tmp_path: Path) -> None:
    talks = [["a" * 9, "b" * 4, "c"], ["", "b"], ["only"], ["x" * 8, "y" * 5]]
    text = [{"id": str(n), "conversations": [{"from": "f", "value": v} for v in talk]} for n, talk in enumerate(talks)]
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(text, indent=1))
    with pytest.raises(DesignError, match=r"set workload.chars_per_token=4"):
        read_trace(path)
    with pytest.raises(DesignError, match=r"row 2, column first text: 0 is not .*row 3, column conversations"):
        read_trace(path, characters=4)
    for characters in (-4.0, float("nan"), float("inf")):
        with pytest.raises(DesignError, match="is not a number of characters above 0"):
            read_trace(path, characters=characters)
    trace = read_trace(path, characters=4, skip="zero")
    assert (trace.prompt.tolist(), trace.output.tolist(), trace.skipped) == ([3, 2], [1, 2], 2)
    with pytest.raises(DesignError, match="this file has token counts"):
        read_trace(SAMPLE, characters=4)


@HERE
@pytest.mark.parametrize(
    ("name", "rows", "prompt", "output", "seconds"),
    [
        ("mooncake_conversation.jsonl", 12031, 12035.1, 342.6, 3537),
        ("azure_llm_2023_conv.csv", 19366, 1154.7, 211.1, 3501.7),
        ("sharegpt_8k_lengths_llama2.csv", 30731, 2340.0, 438.7, None),
        ("arxiv_summarization_lengths_llama2.csv", 28257, 2588.1, 291.4, None),
    ],
)
def test_public_traces_have_the_statistics_stated_beside_them(
    name: str, rows: int, prompt: float, output: float, seconds: float | None
) -> None:
    trace = read_trace(SHARED / name)
    assert len(trace) == rows
    assert trace.prompt.mean() == pytest.approx(prompt, abs=0.05)
    assert trace.output.mean() == pytest.approx(output, abs=0.05)
    assert trace.has_times == (seconds is not None)
    if seconds is not None:
        assert trace.arrival[-1] == pytest.approx(seconds, abs=0.05)


def test_the_same_seed_draws_the_same_requests() -> None:
    known = read_trace(SAMPLE)
    assert known.draw_requests(8, seed=3).prompt.tolist() == known.draw_requests(8, seed=3).prompt.tolist()
    assert known.draw_requests(8, seed=3).prompt.tolist() != known.draw_requests(8, seed=4).prompt.tolist()


@given(st.lists(lengths, min_size=1, max_size=20), st.integers(2, 6000))
def test_clipping_takes_from_the_prompt_first(pairs: list[tuple[int, int]], total: int) -> None:
    many = make_requests(pairs)
    clipped = many.clip_lengths(total)
    assert (clipped.prompt + clipped.output <= np.maximum(total, 2)).all()
    assert (clipped.prompt >= 1).all()
    assert (clipped.output >= 1).all()
    fits = many.prompt + many.output <= total
    assert (clipped.prompt[fits] == many.prompt[fits]).all()
    assert (clipped.output[many.output < total] == many.output[many.output < total]).all()


@given(st.lists(st.tuples(lengths, st.lists(st.integers(0, 9), max_size=4)), min_size=1, max_size=20), st.integers(0, 9))
def test_shuffling_moves_lengths_and_hashes_together(rows: list[tuple[tuple[int, int], list[int]]], seed: int) -> None:
    from dataclasses import replace

    starts = np.cumsum([0, *(len(hashes) for _, hashes in rows)])
    many = replace(
        make_requests([pair for pair, _ in rows], range(len(rows))),
        starts=starts, hashes=np.array([h for _, hashes in rows for h in hashes], np.int32),
    )  # fmt: skip
    mixed = many.shuffle_order(seed)

    def as_rows(requests: Requests) -> list[tuple[int, int, tuple[int, ...]]]:
        ends = zip(requests.starts[:-1], requests.starts[1:], strict=True)
        return [
            (p, o, tuple(requests.hashes[a:b])) for p, o, (a, b) in zip(requests.prompt, requests.output, ends, strict=True)
        ]

    assert sorted(as_rows(mixed)) == sorted(as_rows(many))
    assert mixed.arrival.tolist() == many.arrival.tolist()
    assert as_rows(many.first_requests(3)) == as_rows(many)[:3]


@pytest.mark.parametrize("process", ARRIVAL_PROCESSES)
def test_arrivals_start_at_0_do_not_fall_and_follow_the_seed(process: str) -> None:
    many = make_requests([(1, 1)] * 200)
    requests = many.with_arrivals(process, rate=3.0, cv=2.0, seed=5)
    assert requests.arrival[0] == 0
    assert (np.diff(requests.arrival) >= 0).all()
    assert requests.arrival.tolist() == many.with_arrivals(process, rate=3.0, cv=2.0, seed=5).arrival.tolist()


@pytest.mark.parametrize(("process", "cv"), [("poisson", 1.0), ("gamma", 0.5), ("gamma", 2.0), ("constant", 0.0)])
def test_arrivals_have_the_rate_and_spread_that_were_asked(process: str, cv: float) -> None:
    gaps = np.diff(make_requests([(1, 1)] * 40_000).with_arrivals(process, rate=5.0, cv=cv or 1.0, seed=1).arrival)
    assert gaps.mean() == pytest.approx(0.2, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.05)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (gzip.compress(b"arrival,prompt,output\n0,1,1\n", mtime=0), "compressed by gzip; unpack it first"),
        (b"arrival;prompt;output\n0;1;1\n", "columns are separated by ;, not by commas"),
        (b"arrival\tprompt\toutput\n0\t1\t1\n", "columns are separated by tabs, not by commas"),
        (b"a;b\n1;2\n", "no known columns; the file has 1 other column"),
    ],
)
def test_a_file_that_is_nearly_a_trace_says_what_to_do(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_bytes(content)
    with pytest.raises(DesignError, match=why):
        read_trace(tmp_path / "one.csv")


def test_twice_as_fast_is_half_the_time() -> None:
    assert make_requests([(1, 1)] * 3, [0, 1, 4]).scale_times(2.0).arrival.tolist() == [0, 0.5, 2]


def test_rates_that_are_none_are_refused() -> None:
    for value in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(DesignError, match="not a number above 0"):
            make_requests([(1, 1)]).with_arrivals("poisson", rate=value)
        with pytest.raises(DesignError, match="not a number above 0"):
            make_requests([(1, 1)]).scale_times(value)
    with pytest.raises(DesignError, match="did you mean 'poisson'"):
        make_requests([(1, 1)]).with_arrivals("poison")


def test_a_part_of_the_memory_keeps_prompts_alone(tmp_path: Path) -> None:
    """Blocks with generated tokens are there for who comes later in the pool, and not where prompts are kept apart."""
    rows = [
        {"input_toks": 20, "output_toks": 28, "input_tok_ids": list(range(20)), "output_tok_ids": list(range(20, 48))},
        {"input_toks": 60, "output_toks": 1, "input_tok_ids": list(range(60))},
    ]
    lines = [json.dumps(row | {"arrival_time_ns": place * 10**12}) + "\n" for place, row in enumerate(rows)]
    (tmp_path / "trace.jsonl").write_text("".join(lines))
    trace, pool = (
        read_trace(tmp_path / "trace.jsonl"),
        InstancePool(constant_time(1.0), POLICIES["prefill_first"], KvMemory(100, 16)),
    )
    assert simulate_serving(trace, [replace(pool, prefix=50)])["hit"].tolist() == [0, 16]
    assert simulate_serving(trace, [replace(pool, pooled=True)])["hit"].tolist() == [0, 32]
