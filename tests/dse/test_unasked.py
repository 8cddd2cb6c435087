"""What nothing reads for what is asked is refused where it is said, and changes nothing."""

import numpy as np
import pytest

from dse.config.unread_settings import find_unread_by_workload
from dse.space.errors import DesignError
from dse.space.fields import leaf_at, replace_leaves
from tests.leaves import others, outcome
from tests.samples import asked

LLAMA = ("model=llama3_8b", "workload.batch=[1]", "workload.prompt=64", "workload.output=8")
CASES = {
    ("chip=wse2", *LLAMA): ("mapping.decode.gemm=summa", "+space.mapping.decode.gemm='choice(summa,cannon)'"),
    ("chip=wse2", "workload=gemm"): ("mapping.gemv=ring", "mapping.ktree_k=3", "mapping.gemv_result=all"),
    ("chip=wse2", "workload=gemv"): ("mapping.gemm=cannon",),
    ("chip=npu64", *LLAMA): ("mapping.both.experts=whole",),
    ("chip=h100", "workload=gemm"): (
        "mapping.both.prefetch=whole",
        "mapping.stack.attention_passes=1",
        "+space.mapping.prefill.prefetch='choice(none,whole)'",
    ),
    ("chip=h100", "workload=attention"): (
        "mapping.decode.tp=4",
        "mapping.both.allreduce=ring",
        "mapping.stack.inter_node_launch='1 us'",
        "mapping.stack.attention_passes=1",
    ),
    ("chip=h100", "stack=trtllm_h100", "workload=experts"): (
        "mapping.stack.gemm.achieved=0.5",
        "mapping.stack.hbm_efficiency=0.5",
        "+space.mapping.stack.operator_launch='tag(us, choice(1,2))'",
    ),
    ("chip=a100", "stack=vllm_a100", "workload=elementwise"): (
        "mapping.stack.hbm_efficiency=0.5",
        "mapping.stack.matrix_efficiency=0.5",
    ),
    ("chip=h100", "workload=experts"): ("mapping.both.allreduce=ring", "mapping.stack.network_efficiency=0.5"),
    ("chip=h100", "workload=elementwise"): ("mapping.prefill.prefetch=none", "mapping.stack.collective_launch='1 us'"),
    ("chip=h100", "stack=trtllm_h100", *LLAMA, "mapping.both.tp=8", "mapping.both.allreduce=library"): (
        "mapping.stack.network_efficiency=0.5",
        "mapping.stack.inter_node_launch='1 us'",
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize(("question", "word"), [(question, word) for question, words in CASES.items() for word in words])
def test_what_nothing_reads_is_refused(question: tuple[str, ...], word: str) -> None:
    asked(*question)
    address = word.lstrip("+").partition("=")[0]
    with pytest.raises(DesignError, match=rf"^{address}: has no effect, since .*; (set|leave)"):
        asked(*question, word)


@pytest.mark.parametrize("question", CASES, ids=lambda question: " ".join(question[:2]))
def test_what_is_refused_changes_nothing(question: tuple[str, ...]) -> None:
    given_question = asked(*question)
    idle = [
        address
        for address in find_unread_by_workload(given_question.base, given_question.workload)
        if leaf_at(given_question.base, address) is not None
    ]
    before = outcome(given_question.base, given_question.workload)
    assert idle
    assert before is not None
    for address in idle:
        for value in others(given_question.base, address, np.random.default_rng(0)):
            assert outcome(replace_leaves(given_question.base, {address: value}), given_question.workload) == before, (
                address,
                value,
            )


def test_both_phases_and_what_follows_are_read() -> None:
    asked("chip=wse2", *LLAMA, "mapping.both.gemm=summa")
    asked("chip=wse2", *LLAMA, "mapping.prefill.gemm=summa")
    asked("chip=npu64", "model=mixtral_8x7b", "mapping.both.experts=whole")
    asked("chip=h100", "workload=gemv", "mapping.prefill.tp=4")
    asked("chip=h100", "workload=attention", "mapping.both.tp=4")
    for more in ("mapping.both.tp=16", "+space.mapping.both.tp='choice(8,16)'"):
        asked("chip=h100", *LLAMA, more, "mapping.stack.inter_node_launch='1 us'")
