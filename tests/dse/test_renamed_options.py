"""Former words of mappings, workloads, verification and workers work as their present ones, and content keys have them."""

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import dse.config.renamed_addresses as renamed
from dse.config.compose import compose, find_study_folder
from dse.config.question import build_question
from dse.execution.study import workload_key
from dse.space.aliases import RENAMED_ADDRESSES, RENAMED_GROUPS, new_option_by_old, renamed_fields
from dse.space.design import design_key
from dse.space.errors import DesignError
from dse.store.store import DesignResult, ResultContext, Store

KEYS: list[list[Any]] = json.loads((Path(__file__).parents[1] / "space/former_keys.json").read_text())
"""Lines by former words, with the keys of their design, workload and space as they were before words were renamed.

Words behind them say what was usual then and is no longer: stacks, engines, formats, and where the first token comes from.
"""

SMALL = "model=qwen3_1b7 workload.batch=[1] workload.prompt=64 workload.output=4"
LOAD = "model=qwen3_1b7 workload=serving workload.requests=20"
BASES = {
    "die": f"chip=h100 {SMALL} mapping.both.tp=2",
    "stack": f"chip=h100 stack=trtllm_h100 {SMALL} mapping.both.tp=2",
    "node": "chip=h800_ep model=deepseek_v3 stack=measured_ep",
    "ep": "chip=h800_ep model=deepseek_v3",
    "wafer": f"chip=wse2 {SMALL}",
    "gemv": "chip=wse2 workload=gemv",
    "npu": f"chip=npu64 mapping=npu_prefetch {SMALL}",
    "flat": f"chip=tile32 mapping=flat_prefetch {SMALL}",
    "attention": "chip=tile32 workload=attention mapping.dataflow=flash_split",
    "dies": "chip=wafer64 workload=collective",
    "tiles": "chip=tile32 workload=collective",
    "served": f"chip=h100 inference_engine=none {LOAD}",
    "served npu": f"chip=npu64 {LOAD}",
    "trace": f"chip=h100 model=qwen3_1b7 workload=serving workload.trace={Path(__file__).parents[1] / 'lengths.csv'}",
    "experts": "chip=h100 model=mixtral_8x7b workload.batch=[1] workload.prompt=64 workload.output=4",
}
"""Lines that overrides are put behind."""

PAIRS = """
die mapping.both.prefetch_cap=0.3 mapping.both.prefetch_share=0.3
die +mapping.both.kv_heads=more +mapping.both.kv_heads=round_up
die +mapping.both.kv_heads=fewer +mapping.both.kv_heads=round_down
die mapping.stack.matrix_achieved=0.4 mapping.stack.matrix_efficiency=0.4
die mapping.stack.hbm_achieved=0.4 mapping.stack.hbm_efficiency=0.4
die mapping.stack.network_achieved=0.4 mapping.stack.network_efficiency=0.4
die mapping.stack.operator_overhead=7us mapping.stack.operator_launch=7us
die mapping.stack.collective_call=7us mapping.stack.collective_launch=7us
die mapping.stack.nodes_call=7us mapping.stack.inter_node_launch=7us
die +mapping.stack.nodes_achieved=0.4 +mapping.stack.inter_node_efficiency=0.4
die workload.decode_at=last workload.decode_context=last
stack mapping.stack.products.start=7us mapping.stack.gemm.start=7us
stack mapping.stack.context.start=7us mapping.stack.prefill_attention.start=7us
stack mapping.stack.generation.start=7us mapping.stack.decode_attention.start=7us
stack mapping.stack.latent_context.start=7us mapping.stack.mla_prefill_attention.start=7us
stack mapping.stack.latent_generation.start=7us mapping.stack.mla_decode_attention.start=7us
stack mapping.stack.experts.start=7us mapping.stack.grouped_gemm.start=7us
stack mapping.stack.rings=null mapping.stack.ring_collectives=null
stack mapping.stack.exchanges=null mapping.stack.all_to_all=null
stack mapping.stack.short=null mapping.stack.one_shot_allreduce=null
node mapping.stack.dispatch=null mapping.stack.moe_all_to_all=null
ep mapping.both.exchange=by_node mapping.both.all_to_all=hierarchical
ep mapping.both.exchange=near mapping.both.all_to_all=nearest_replica
ep mapping.both.overlap=halves mapping.both.overlap=two_batch
ep mapping.both.experts.shared=2 mapping.both.experts.shared_copies=2
ep mapping.both.sums=two_level mapping.both.allreduce=two_level
wafer mapping.resident_layers=2 mapping.simulated_layers=2
wafer mapping.kv=concat mapping.kv_placement=concat
gemv mapping.sums=all mapping.gemv_result=all
npu mapping.sram_kv=0.3 mapping.sram_kv_share=0.3
npu mapping.both.prefetch.cap=0.3 mapping.both.prefetch.share=0.3
npu mapping.both.sums.algorithm=turns mapping.both.allreduce.algorithm=overlapped_ring
flat +mapping.decode.states=0.3 +mapping.decode.state_share=0.3
flat +mapping.both.attention.splits=2 +mapping.both.attention.kv_splits=2
attention +mapping.splits=4 +mapping.kv_splits=4
dies mapping.collective=by_node mapping.collective=hierarchical
tiles workload.along=column workload.group_axis=column
served mapping.serving.policy=chunked mapping.serving.policy=chunked_prefill
served mapping.serving.policy=fusion mapping.serving.policy=pd_fusion
served mapping.serving.prefill_policy=chunked mapping.serving.prefill_policy=chunked_prefill
served mapping.serving.prefill_policy=fusion mapping.serving.prefill_policy=pd_fusion
served mapping.serving.tokens=777 mapping.serving.max_batched_tokens=777
served mapping.serving.batch=7 mapping.serving.max_batch_size=7
served mapping.serving.chunk=7 mapping.serving.max_chunk_tokens=7
served mapping.serving.unit=7 mapping.serving.chunk_budget_units=7
served mapping.serving.block=32 mapping.serving.block_size=32
served mapping.serving.blocks=777 mapping.serving.kv_blocks=777
served mapping.serving.reserved=1GB mapping.serving.reserved_memory=1GB
served mapping.serving.admit=gate mapping.serving.admission=gate
served mapping.serving.host=7GB/s mapping.serving.host_bandwidth=7GB/s
served mapping.serving.host_capacity=7GB mapping.serving.host_kv_capacity=7GB
served mapping.serving.reuse=pool mapping.serving.prefix_cache=shared
served mapping.serving.reuse=part mapping.serving.prefix_cache=reserved
served mapping.serving.prefix=0.2 mapping.serving.prefix_cache_share=0.2
served mapping.serving.snapshot=64 mapping.serving.state_snapshot_tokens=64
served mapping.serving.transfer=by_layer mapping.serving.kv_transfer=layerwise
served mapping.serving.prefill_batch=7 mapping.serving.prefill_max_batch_size=7
served mapping.serving.prefill_tokens=777 mapping.serving.prefill_max_batched_tokens=777
served workload.arrivals=at_once workload.arrivals=offline
served workload.arrivals=fixed workload.arrivals=constant
served workload.arrivals=closed workload.arrivals=closed_loop
served workload.rate=largest workload.rate=max
served workload.percentile=99 workload.slo_percentile=99
served workload.classes=[{name:a,share:1}] workload.slo_classes=[{name:a,share:1}]
served workload.clip=77 workload.max_length=77
served npu mapping.both.microbatch=3 mapping.both.microbatch_size=3
served npu mapping.both.chunk=64 mapping.both.max_chunk_tokens=64
served npu mapping.both.stages=parts mapping.both.stages=operators
served npu mapping.serving.overflow=ring mapping.serving.kv_overflow=ring
served npu mapping.serving.tokens=777 mapping.serving.max_batched_tokens=777
served npu mapping.serving.transfer=by_layer mapping.serving.kv_transfer=layerwise
trace workload.scale=largest workload.rate_scale=max
trace workload.scale=2 workload.rate_scale=2
trace workload.ticks=true workload.coarse_timestamps=true
trace workload.characters=4 workload.chars_per_token=4
experts workload.routing=sampled workload.expert_load=sampled
die verify.side=4 verify.submesh=4
die workers.start=9s workers.start_time=9s
die +library/products@mapping.stack.products=vllm_a100 +library/gemm@mapping.stack.gemm=vllm_a100
"""
"""A base, an override by former words, and the same by present words."""


def pairs() -> list[tuple[str, str, str]]:
    """Base, former and present override of each line."""
    found = [line.rsplit(" ", 2) for line in PAIRS.strip().splitlines()]
    return [(BASES[base], former, present) for base, former, present in found]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(renamed.SAID, raising=False)


def plain(line: str, word: str) -> dict[str, Any]:
    """What a line composes to, but for how it was typed."""
    found = compose([*line.split(), word])
    return {name: value for name, value in found.items() if name not in ("overrides", "choices")}


@pytest.mark.parametrize(
    ("line", "former", "present"), pairs(), ids=lambda word: word if "=" in word and " " not in word else ""
)
def test_a_former_word_composes_to_what_its_present_word_does(line: str, former: str, present: str) -> None:
    found = plain(line, former)
    assert found == plain(line, present)
    shipped = compose(line.split())
    default = {name: value for name, value in shipped.items() if name not in ("overrides", "choices")}
    assert found != default or any(word in present for word in ("reserved", "chunked_prefill", "pd_fusion"))


def test_every_former_word_is_tried() -> None:
    tried = "\n".join(former.lstrip("+") for _, former, _ in pairs())

    def both(address: str) -> str:
        return address.replace(".prefill.", ".both.").replace(".decode.", ".both.")

    olds = {both(alias.old) for alias in renamed_fields() if alias.old.startswith("mapping.")}
    olds |= {alias.old for alias in RENAMED_ADDRESSES if not alias.machine}
    missing = {old for old in olds if old not in both(tried)}
    options = {f"={old}" for address, words in new_option_by_old().items() for old in words if not address.startswith("chip.")}
    assert not missing - {"mapping.both.states"}, "a line in PAIRS tries each"
    assert not {option for option in options if option not in tried}


@pytest.mark.parametrize(("words", "design", "workload", "space"), KEYS, ids=lambda of: of[0] if isinstance(of, list) else "")
def test_keys_are_made_of_former_words(words: list[str], design: str, workload: str, space: str) -> None:
    config = compose(words)
    found = build_question(config, find_study_folder(config))
    if found.base.chip.published is not None:  # facts came later, and are in keys
        config = compose([*words, "chip.published=null"])
        found = build_question(config, find_study_folder(config))
    assert (design_key(found.base), workload_key(found.workload), found.space.key) == (design, workload, space)


@pytest.mark.parametrize(("line", "former", "present"), [pairs()[place] for place in (0, 11, 42, 63)])
def test_a_former_and_a_present_word_at_once_are_refused(line: str, former: str, present: str) -> None:
    with pytest.raises(DesignError, match="two names of one address"):
        compose([*line.split(), former, present])


def test_the_notice_is_printed_once_a_process_tree_and_not_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["chip=h100", "model=qwen3_1b7", "mapping.both.prefetch_cap=0.3", "mapping.both.tp=2"]
    compose(words)
    first = capsys.readouterr()
    assert first.out == ""
    assert first.err == "mapping.both.prefetch_cap is now mapping.both.prefetch_share\n"
    assert "prefetch_cap" in os.environ[renamed.SAID]
    compose(words)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("former", "present"), RENAMED_GROUPS.items())
def test_a_file_that_chooses_a_library_by_its_former_group(
    former: str, present: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, now = former.partition("/")[2], present.partition("/")[2]
    name = next((Path(renamed.SHIPPED_CONF) / present).glob("*.yaml")).stem
    (tmp_path / "own/stack").mkdir(parents=True)
    for group, of in ((former, part), (present, now)):
        text = f"# @package mapping.stack\ndefaults: [tuned, /{group}@{of}: {name}, _self_]\n"
        (tmp_path / f"own/stack/by_{of}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    old, new = (compose(["-cd=own", f"stack=by_{of}", *BASES["die"].split()])["mapping"] for of in (part, now))
    assert old == new
    assert old["stack"][now] is not None


def test_stored_rows_have_present_words(tmp_path: Path) -> None:
    context = ResultContext("w" * 32, "closed", 1)
    leaves = {"chip.cores": 1.0, "chip.l2.size": 1.0, "mapping.serving.policy": "chunked", "mapping.serving.tokens": 7}
    values = {"mapping.both.exchange": "by_node", "mapping.serving.batch": 8}
    result = DesignResult("d" * 32, values, {"tpot": 1.0}, "mapping.decode.sums", 2.0, 1.0)
    with closing(Store(str(tmp_path / "s.sqlite"))) as store:
        store.begin("s", {"mapping.decode.overlap": "halves", "space.mapping.both.exchange.values": "['direct', 'near']"}, {})
        store.append("s", context, ("b", json.dumps(leaves)), [], [result])
        found = store.results(context)[result.key]
        assert found.values == {"mapping.both.all_to_all": "hierarchical", "mapping.serving.max_batch_size": 8}
        assert found.limit == "mapping.decode.allreduce"
        assert store.bases(context)[result.key] == {
            "chip.cores": 1.0,
            "chip.l2.size": 1.0,
            "mapping.serving.policy": "chunked_prefill",
            "mapping.serving.max_batched_tokens": 7,
        }
        assert store.identity("s") == {
            "mapping.decode.overlap": "two_batch",
            "space.mapping.both.all_to_all.values": "['direct', 'nearest_replica']",
        }
