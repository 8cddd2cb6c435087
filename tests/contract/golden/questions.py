"""What the golden set asks: some small questions of every judge at each of its fidelities."""

from string import Template

from dse.evaluators.accounting.layout import layout_of_software
from dse.evaluators.calls.submesh import SUBMESH_MARK
from dse.evaluators.evaluation import READERS
from dse.evaluators.workloads import kernels, serving
from dse.space.design import Design
from dse.space.software import software_of
from dse.space.workload import WorkloadCase

SHORT = {
    "BANKS": "+memory@chip.hbm.banks=hbm3",
    "BOXES": "+chip.nodes={size:4,bandwidth:50GB/s,latency:3us,exchange_start:2us}",
    "EXPERTS": "+mapping.precision.experts=mxfp4 +mapping.precision.attention=mxfp8",
    "EXCHANGES": "workload=collective workload.pattern=[all_to_all,allreduce,allgather,reduce_scatter]"
    " workload.group_axis=rectangle workload.root=0",
    "FEW": "model=qwen3_1b7 model.qwen3_1b7.layers=4"
    " workload=serving workload.requests=3 workload.prompt=100 workload.output=3",
    "FP8": "mapping.precision.weights=fp8 mapping.precision.activations=fp8 mapping.precision.kv=fp8",
    "LATENT": "workload=attention workload.kv_heads=1 workload.qk=576 workload.v=512 workload.latent=true",
    "PATTERNS": "workload.patterns=[sequential,random,stride4096,chunk512]",
    "SERVED": "workload=serving workload.requests=6 workload.prompt=300 workload.output=8",
    "SMALL": "chip.mesh.rows=4 chip.mesh.cols=4 chip.hbm.channels=4",
    "SUMS": "workload.pattern=[allreduce] workload.group_axis=rectangle workload.root=0 workload.group=mesh "
    "workload.combine=sum",
    "TREES": "workload=collective workload.pattern=[allreduce,multicast,reduce] workload.group_axis=rectangle workload.root=0"
    " workload.bytes=[64KiB]",
    "TINY": "workload.batch=[2] workload.prompt=48 workload.output=4",
}
"""What several questions say alike."""


class Slow(str):
    """A question that takes long to answer: tests ask it with SLOW=all."""


QUESTIONS: dict[str, tuple[str, ...]] = {
    "models": (
        "chip=npu_dse model=llama3_8b mapping.both.tp=8",
        "chip=npu_dse model=llama3_405b mapping.prefill.tp=32 mapping.prefill.prefetch=partial",
        "chip=npu_dse model=mixtral_8x7b mapping.both.tp=8 mapping.prefill.allreduce=ring chip.network.latency_per=hop",
        "chip=npu_dse model=deepseek_v3 mapping.prefill.tp=16 mapping.precision.weights=fp8",
        "chip=npu_dse model=mistral_7b workload.decode_context=last mapping.prefill.tp=4",
        "chip=npu_dse technology@chip.technology=n7 mapping.prefill.tp=1 mapping.precision.activations=bf16",
        "chip=npu_dse model=[qwen3_30b_a3b,phi3_small] mapping.both.tp=8 workload.batch=[1,3] "
        "workload.lengths=lengths.csv workload.requests=4",
        "chip=ascend910b model=qwen2_7b mapping.prefill.tp=2 mapping.prefill.allreduce=full_mesh",
        "chip=a100 mapping.prefill.tp=16",
        "chip=mi300x model=llama3_8b mapping.both.tp=2",
        "chip=npu_dse +areas@chip.areas=preserve_table2 mapping.prefill.tp=4",
        "chip=wse2_hbm model=llama2_70b workload.batch=[1] workload.prompt=512 workload.output=32",
        "chip=wse2_hbm model=llama2_70b workload.batch=[1] workload.prompt=512 workload.output=8 "
        "mapping.precision.weights=mxfp8",
        "chip=npu64 model=qwen3_next_80b_a3b mapping.both.tp=8 mapping.both.pp=8 "
        "+mapping.decode.state_share=0.3 workload.batch=[2] "
        "workload.prompt=512 workload.output=8",
        "chip=npu64 model=qwen3_4b workload.sequence=[512] +part@chip.l2=l2_256mb",
        "chip=wse2 workload.batch=[1] workload.prompt=2048 workload.output=128",
        "chip=wse2 model=mixtral_8x7b mapping.simulated_layers=4 mapping.prefill.rows=500 mapping.prefill.cols=250",
        "chip=wse2 mapping=t10 workload.batch=[1]",
        "chip=wse2 mapping=ladder workload.batch=[1]",
        Slow("chip=wse2 model=deepseek_v2_lite workload.batch=[1] workload.sequence=[512] mapping.simulated_layers=2"),
        "chip=wse3 model=mistral_7b workload.batch=[1,3] workload.sequence=[4096,8192] workload.decode_context=last",
        Slow(
            "chip=h200 model=[gemma3_12b,llama4_scout,deepseek_v32,qwen3_next_80b_a3b,nemotron3_nano] mapping.both.tp=8 "
            "workload.batch=[2,4] workload.prompt=9000 workload.output=64"
        ),
        Slow(
            "chip=h800_ep model=[deepseek_v4_flash,minimax_m3,qwen3_235b_a22b] mapping.both.ep=64 workload.batch=[256] "
            "workload.prompt=5000 workload.output=8"
        ),
        Slow("chip=npu64 model=[gemma3_12b,qwen35_27b,nemotron3_nano] workload.batch=[2] workload.sequence=[3000]"),
        Slow(
            "chip=wse2 model=[qwen35_27b,nemotron3_nano] workload.batch=[1] workload.sequence=[3000] mapping.simulated_layers=4"
        ),
        Slow("chip=tile_gh200 model=[gemma3_12b,qwen35_27b,nemotron3_nano] workload.batch=[2] workload.sequence=[3000]"),
        Slow("chip=tile_gh200 model=qwen35_27b +mapping.decode.state_share=0.3 workload.batch=[1] workload.sequence=[3000]"),
        Slow(
            "chip=tile_gh200 model=mistral_small_4 +model.mistral_small_4.indexer={heads:16,dim:128,top:512} "
            "workload.batch=[1] workload.sequence=[3000]"
        ),
        "chip=tile_gh200 model=mistral_small_4 +model.mistral_small_4.indexer={heads:16,dim:128,top:512} workload.batch=[1] "
        "workload.sequence=[1000] +mapping.precision.index=mxfp4",
        Slow("chip=wafer64 model=qwen3_next_80b_a3b workload.batch=[64] workload.prompt=3000 workload.output=8"),
        Slow("chip=dojo model=qwen3_1b7 workload.batch=[2] workload.sequence=[512]"),
        Slow(
            "chip=wse2 model=qwen3_1b7 model.qwen3_1b7.layers=2 $TINY mapping.prefill.rows=8 mapping.decode.rows=6 "
            "fidelity=events"
        ),
        Slow(
            "chip=dojo model=mixtral_8x7b model.mixtral_8x7b.layers=1 $TINY mapping.prefill.rows=6 "
            "mapping.decode.rows=4 fidelity=events"
        ),
        "chip=wse2 model=deepseek_v4_flash workload.batch=[1] workload.prompt=1024 workload.output=64",
        "chip=wse2 model=deepseek_v4_flash workload.sequence=[256] mapping.simulated_layers=1 fidelity=events@6",
        "chip=wse2 model=qwen3_1b7 workload.sequence=[256] fidelity=analytical@6",
        Slow("chip=wse2 model=qwen3_1b7 workload.sequence=[256] fidelity=events@6"),
        Slow(
            "chip=wse2 mapping=ladder model=mixtral_8x7b workload.batch=[1] workload.sequence=[256] "
            "mapping.simulated_layers=2 fidelity=events@4"
        ),
        Slow("chip=wse2 model=qwen3_1b7 workload.sequence=[256] fidelity=cycles@6"),
        Slow("chip=npu64 model=qwen3_4b workload.sequence=[512]"),
        "chip=npu64 model=qwen3_4b mapping.both.tp=16 mapping.both.placement=linear_seq",
        Slow("chip=npu64 model=deepseek_v2_lite workload.sequence=[2048]"),
        Slow("chip=npu256 model=mixtral_8x7b workload.batch=[1,3] workload.sequence=[4096] mapping.both.experts=whole"),
        Slow("chip=tile32 model=mistral_7b mapping=npu workload.sequence=[8192] workload.decode_context=last"),
        Slow("chip=npu64 model=qwen3_4b workload.sequence=[512] fidelity=events"),
        Slow(
            "chip=npu64 model=mixtral_8x7b workload.sequence=[256] mapping.both.experts=whole "
            "mapping.both.partition=mn_k mapping.both.placement=mesh fidelity=events"
        ),
        Slow("chip=npu64 model=deepseek_v2_lite workload.sequence=[256] mapping.both.partition=mn fidelity=events"),
        Slow("chip=npu64 model=qwen3_4b workload.sequence=[512] mapping.both.tp=16 fidelity=cycles"),
        Slow("chip=npu64 model=mistral_7b workload.sequence=[256] mapping.both.partition=input_only fidelity=cycles"),
        Slow(
            "chip=npu64 mapping=npu_prefetch model=qwen3_4b mapping.both.tp=16 mapping.both.pp=4 workload.batch=[1,16] "
            "workload.sequence=[512]"
        ),
        Slow(
            "chip=npu64 mapping=npu_ktree model=qwen3_4b mapping.both.tp=16 mapping.both.pp=4 workload.batch=[1,16] "
            "workload.sequence=[512]"
        ),
        "chip=npu64 mapping=npu_ktree model=qwen3_4b mapping.both.tp=8 mapping.prefill.allreduce.algorithm=ktree "
        "mapping.prefill.allreduce.ktree_k=3 workload.sequence=[512]",
        Slow(
            "chip=npu64 mapping=npu_ktree model=mixtral_8x7b mapping.both.tp=8 mapping.both.allreduce.algorithm=two_level "
            "mapping.both.allreduce.ktree_k=null mapping.both.placement=mesh workload.sequence=[512]"
        ),
        Slow(
            "chip=npu64 mapping=npu_ktree model=qwen3_4b mapping.both.tp=8 mapping.prefill.allreduce.algorithm=two_level "
            "mapping.both.placement=mesh workload.sequence=[256] fidelity=events"
        ),
        Slow("chip=npu64 mapping=npu_ktree model=qwen3_4b mapping.both.tp=8 workload.sequence=[64] fidelity=cycles"),
        "chip=npu_dse model=llama3_8b mapping.both.tp=8 mapping.both.allreduce=tree "
        "chip.network.latency_per=hop chip.network.ports=3",
        "chip=mi300x model=qwen3_8b mapping.both.tp=8 mapping.both.allreduce=ktree mapping.both.ktree_k=2 "
        "chip.network.latency_per=hop chip.network.latency=2us workload.batch=[1,16]",
        "chip=tpu_v5p model=llama3_8b mapping.both.tp=4 mapping.both.allreduce=two_level chip.network.latency_per=hop",
        Slow(
            "chip=npu64 mapping=npu_flat_attention model=qwen3_4b mapping.both.tp=8 mapping.both.pp=8 workload.batch=[1,16] "
            "workload.sequence=[512]"
        ),
        "chip=npu64 mapping=npu_flat_attention model=deepseek_v2_lite mapping.both.tp=8 mapping.both.placement=mesh "
        "workload.sequence=[256] fidelity=events",
        "chip=npu64 mapping=npu_prefetch model=mixtral_8x7b mapping.both.tp=8 workload.sequence=[256] fidelity=events",
        Slow("chip=tile32 model=qwen3_1b7 workload.batch=[2] workload.prompt=300 workload.output=20"),
        Slow("chip=tile_gh200 model=deepseek_v2_lite workload.batch=[2] workload.prompt=300 workload.output=20"),
        Slow("chip=tile_gh200 model=mixtral_8x7b workload.batch=[1,4] workload.sequence=[1024]"),
        Slow(
            "chip=npu64 mapping=flat model=mistral_7b workload.batch=[2] workload.sequence=[8192] workload.decode_context=last"
        ),
        Slow(
            "chip=wafer64 model=deepseek_v3 workload.batch=[1024] workload.prompt=4096 workload.output=4 "
            "workload.expert_load=even"
        ),
        Slow(
            "chip=h800_ep chip.dies.rows=2 chip.dies.cols=8 model=deepseek_v3 workload.batch=[64,256] workload.prompt=1024 "
            "workload.output=4 mapping.both.ep=16 mapping.both.all_to_all=hierarchical workload.expert_load=sampled"
        ),
        Slow(
            "chip=h800_ep chip.dies.rows=2 chip.dies.cols=4 chip.nodes.size=4 model=deepseek_v2_lite workload.batch=[16] "
            "workload.prompt=512 workload.output=4 mapping.both.ep=4 mapping.both.tp=2 mapping.both.pp=2"
        ),
        Slow(
            "chip=h800_ep chip.dies.rows=2 chip.dies.cols=4 chip.nodes.size=4 model=deepseek_v2_lite workload.batch=[16] "
            "workload.prompt=512 workload.output=4 mapping.both.ep=4 $EXPERTS mapping.precision.weights=fp8_128x128 "
            "mapping.precision.activations=fp8_1x128"
        ),
        Slow("chip=b200 model=mixtral_8x7b mapping.both.tp=2 workload.batch=[64] $EXPERTS"),
        Slow(
            "chip=ascend910b model=llama3_8b mapping.both.tp=2 mapping.precision.weights=int4_g128 "
            "mapping.precision.kv=int4_head"
        ),
        Slow("chip=npu64 model=qwen3_30b_a3b workload.sequence=[512] mapping.both.experts=whole $EXPERTS"),
        "chip=npu64 model=qwen3_4b workload.sequence=[512] mapping.precision.weights=int4_g32 mapping.precision.kv=mxfp8",
        "chip=wafer64 chip.dies.rows=2 chip.dies.cols=4 $SMALL model=deepseek_v2_lite workload.batch=[16,48] "
        "workload.prompt=100 workload.output=8 mapping.both.tp=2 mapping.both.ep=4 mapping.both.pp=2 "
        "mapping.both.attention.dataflow=flat_rows mapping.both.overlap=two_batch",
        "chip=wafer64 chip.dies.rows=2 chip.dies.cols=4 $SMALL model=deepseek_v2_lite workload.batch=[16] $BOXES "
        "workload.prompt=100 workload.output=8 mapping.both.ep=8 mapping.both.pp=1 mapping.both.all_to_all=hierarchical "
        "mapping.both.placement=linear mapping.both.experts.shared_copies=4",
        "chip=h800_ep chip.dies.rows=2 chip.dies.cols=4 chip.nodes.size=4 model=deepseek_v2_lite workload.batch=[16] "
        "workload.prompt=512 workload.output=4 mapping.both.ep=8 mapping.both.all_to_all=hierarchical fidelity=events",
        Slow(
            "chip=wafer64 chip.dies.rows=2 chip.dies.cols=2 $SMALL model=deepseek_v2_lite model.deepseek_v2_lite.layers=2 "
            "workload.batch=[4] workload.prompt=40 workload.output=2 mapping.both.ep=4 mapping.both.pp=1 fidelity=events"
        ),
        Slow(
            "chip=tile32 $SMALL model=qwen3_1b7 model.qwen3_1b7.layers=2 workload.batch=[1] workload.prompt=64 "
            "workload.output=4 fidelity=events"
        ),
        Slow(
            "chip=tile_gh200 $SMALL model=deepseek_v2_lite model.deepseek_v2_lite.layers=2 workload.batch=[1] "
            "workload.prompt=32 workload.output=4 "
            "mapping.both.attention.dataflow=flat_seq fidelity=events"
        ),
        Slow(
            "chip=tile_gh200 model=deepseek_v2_lite workload.batch=[2] workload.prompt=300 workload.output=20 "
            "mapping.decode.attention.dataflow=flash_split"
        ),
        "chip=npu64 mapping=npu_flat_attention model=qwen3_4b mapping.both.tp=8 workload.batch=[2] workload.sequence=[300] "
        "mapping.decode.attention.dataflow=flash_split",
        Slow(
            "chip=tile_gh200 model=qwen3_1b7 workload.batch=[2] workload.prompt=300 workload.output=20 "
            "mapping.both.attention.dataflow=flat_rows"
        ),
        "chip=npu64 mapping=npu_flat_attention model=qwen3_4b mapping.both.tp=8 workload.batch=[2] workload.sequence=[300] "
        "mapping.both.attention.dataflow=flat_rows",
        "chip=tile_gh200 model=qwen3_1b7 workload.sequence=[512] fidelity=analytical@4",
        Slow("chip=tile_gh200 model=mixtral_8x7b workload.sequence=[512] fidelity=events@4"),
        Slow("chip=tile_gh200 model=qwen3_1b7 workload.sequence=[512] fidelity=cycles@4"),
        "chip=a100 stack=sglang_he2025 mapping.both.tp=16",
        "chip=npu64 model=qwen3_4b mapping.both.tp=16 mapping.both.pp=4 mapping.both.placement=mesh "
        "mapping.both.partition=auto workload.batch=[1,16] workload.sequence=[512]",
        "chip=npu64 model=mixtral_8x7b workload.sequence=[256] mapping.both.placement=mesh mapping.both.partition=summa",
        "chip=npu64 model=qwen3_4b mapping.both.tp=16 mapping.both.pp=4 workload.sequence=[256] mapping.both.placement=mesh "
        "mapping.both.partition=meshgemm fidelity=events",
        "chip=tile_gh200 $SMALL model=qwen3_1b7 model.qwen3_1b7.layers=2 workload.batch=[1] workload.prompt=64 "
        "workload.output=4 +part@chip.l2=l2_256mb fidelity=events",
        "chip=tile_gh200 $SMALL mapping=flat_prefetch model=qwen3_1b7 model.qwen3_1b7.layers=2 workload.batch=[1] "
        "workload.prompt=64 workload.output=4 fidelity=events",
        "chip=wse2_hbm model=qwen3_1b7 model.qwen3_1b7.layers=2 $TINY mapping.prefill.rows=8 mapping.decode.rows=6 "
        "fidelity=events",
        "chip=npu64 model=qwen3_4b mapping.both.tp=4 mapping.both.pp=6 workload.batch=[16] workload.sequence=[256]",
        "chip=wse2_hbm model=llama2_70b workload.batch=[5,6] workload.prompt=512 workload.output=16",
        "chip=wse2_hbm model=llama2_70b $BANKS workload.batch=[2] workload.prompt=512 workload.output=16",
        "chip=wse2_hbm model=qwen3_1b7 model.qwen3_1b7.layers=2 $BANKS $TINY mapping.prefill.rows=8 mapping.decode.rows=6 "
        "fidelity=events",
        "chip=h800_ep chip.dies.rows=2 chip.dies.cols=4 chip.nodes.size=4 model=deepseek_v2_lite workload.batch=[2] "
        "workload.prompt=512 workload.output=4 mapping.both.ep=1 mapping.both.tp=2 mapping.both.pp=4",
        "chip=h200 stack=ideal model=qwen3_1b7 mapping.both.tp=2 $BANKS chip.hbm.banks.stacks=6 $TINY fidelity=events",
        "chip=h200 stack=ideal model=qwen3_1b7 model.qwen3_1b7.layers=2 mapping.both.tp=1 $BANKS chip.hbm.banks.stacks=6 $TINY "
        "fidelity=cycles",
    ),
    "die_product": (
        "chip=npu_dse workload=gemm mapping=tensor_parallel workload.shapes=[300x512x700,1x512x300]",
        "chip=a100 workload=gemm mapping=tensor_parallel mapping.prefill.tp=16 workload.shapes=[4096x4096x4096]",
        "chip=ascend910b workload=gemv mapping=tensor_parallel",
        "chip=h800 stack=deepgemm_h800 workload=gemm mapping=tensor_parallel mapping.both.tp=1 workload.shapes=[70x512x7168] "
        "mapping.precision.weights=fp8_128x128 mapping.precision.activations=fp8_1x128",
        "chip=h200 stack=ideal workload=gemm mapping=tensor_parallel $BANKS chip.hbm.banks.stacks=6 "
        "workload.shapes=[16x2048x2048] "
        "fidelity=events",
        "chip=h200 stack=ideal workload=gemm mapping=tensor_parallel $BANKS chip.hbm.banks.stacks=6 "
        "workload.shapes=[16x2048x2048] "
        "fidelity=cycles",
    ),
    "die_kernel": (
        "chip=h100 workload=experts stack=trtllm_h100 mapping.decode.tp=2 workload.ep=8 workload.tokens=[3,700]",
        "chip=h100 workload=experts mapping.decode.tp=1 workload.distribution=power_law workload.exponent=1.2 $FP8",
        "chip=a100 workload=elementwise stack=vllm_a100 mapping.decode.tp=1 workload.rows=[64,4096]",
        "chip=npu_dse workload=elementwise mapping=tensor_parallel workload.operator=gate",
        "chip=rtx4090 workload=elementwise stack=vllm_rtx4090 mapping.decode.tp=1 workload.operator=rotate "
        "workload.rows=[64,4096]",
        "chip=rtx4090 workload=elementwise stack=vllm_rtx4090 mapping.decode.tp=1 workload.operator=norm "
        "workload.rows=[64,4096]",
        "chip=h200 stack=ideal workload=experts mapping.decode.tp=1 $BANKS chip.hbm.banks.stacks=6 "
        "workload.ep=8 workload.tokens=[4] fidelity=events",
        "chip=h200 stack=ideal workload=experts mapping.decode.tp=1 $BANKS chip.hbm.banks.stacks=6 "
        "workload.ep=8 workload.tokens=[4] fidelity=cycles",
    ),
    "die_attention": (
        "chip=h100 workload=attention stack=trtllm_h100 mapping=sglang mapping.both.tp=1 workload.keys=[512,4096] "
        "workload.batch=4",
        "chip=a100 workload=attention stack=vllm_a100 mapping=sglang mapping.both.tp=1 workload.queries=1 workload.keys=[3000]",
        "chip=h100 stack=trtllm_h100 mapping=sglang mapping.both.tp=1 $LATENT workload.heads=64 workload.queries=1 "
        "workload.keys=[300,5000] workload.batch=48 mapping.precision.kv=fp8",
        "chip=h200 stack=ideal workload=attention mapping=sglang mapping.both.tp=1 $BANKS chip.hbm.banks.stacks=6 "
        "workload.queries=1 workload.keys=[3000] "
        "fidelity=events",
        "chip=h200 stack=ideal workload=attention mapping=sglang mapping.both.tp=1 $BANKS chip.hbm.banks.stacks=6 "
        "workload.queries=1 workload.keys=[3000] "
        "fidelity=cycles",
    ),
    "die_collective": (
        "chip=h100 workload=collective stack=trtllm_h100 mapping=sglang mapping.both.tp=8 mapping.both.allreduce=library "
        "$SUMS workload.bytes=[64KiB,64MiB]",
        "chip=a100 workload=collective stack=tuned mapping=sglang mapping.both.tp=4 $SUMS workload.bytes=[1MiB]",
    ),
    "collective_of_dies": (
        "chip=wafer64 $EXCHANGES mapping.collective=direct workload.bytes=[64KiB,16MiB]",
        "chip=wafer64 $TREES mapping.collective=ktree mapping.within=hardware mapping.members=16 mapping.placement=blocks",
        "chip=h800_ep $TREES workload.pattern=allreduce mapping.collective=two_level",
        "chip=wafer64 chip.dies.rows=2 chip.dies.cols=4 $EXCHANGES mapping.collective=direct workload.bytes=[256KiB] "
        "fidelity=events",
        "chip=h800_ep chip.dies.rows=2 workload=collective workload.pattern=all_to_all workload.group_axis=rectangle "
        "workload.root=0 mapping.collective=hierarchical workload.bytes=[1MiB] fidelity=events",
        "chip=wafer64 chip.dies.rows=2 chip.dies.cols=4 $EXCHANGES mapping.collective=direct workload.bytes=[256KiB] "
        "fidelity=cycles",
    ),
    "product": (
        "chip=wse2 workload=gemm workload.shapes=[300x512x700,1x512x300]",
        "chip=wse2 workload=gemv workload.shapes=[1x4096x4096,1x512x700]",
        "chip=wse3 workload=gemv workload.shapes=[1x512x700] mapping.gemv_result=all",
        "chip=dojo workload=gemm mapping.rows=60 mapping.cols=90",
        "chip=wse2 workload=gemm workload.shapes=[60x40x80] mapping.rows=6 mapping.cols=4 fidelity=events",
        "chip=wse2 workload=gemv workload.shapes=[1x60x80] mapping.rows=9 mapping.cols=4 fidelity=events",
        "chip=wse2 workload=gemm workload.shapes=[30x40x24] mapping.rows=4 fidelity=cycles",
        "chip=wse2 workload=gemv workload.shapes=[1x60x80] mapping.rows=6 chip.faults=1-2 fidelity=cycles",
        "chip=wse2 workload=gemm workload.shapes=[300x512x700] fidelity=analytical@4",
        "chip=wse2 workload=gemm workload.shapes=[300x512x700] fidelity=events@4",
        "chip=wse2 workload=gemv workload.shapes=[1x512x700] fidelity=cycles@4",
        Slow("chip=tile32 workload=gemm mapping=product mapping.rows=8 workload.shapes=[300x512x700,1024x512x300]"),
        "chip=npu64 workload=gemm mapping=product mapping.rows=4 workload.shapes=[60x40x80] fidelity=events",
    ),
    "tile_product": (
        "chip=tile32 workload=gemm workload.shapes=[300x512x700,1x512x300]",
        "chip=tile_gh200 workload=gemv",
        "chip=npu64 workload=gemm mapping=summa workload.shapes=[4096x512x700]",
        Slow("chip=tile32 $SMALL workload=gemm workload.shapes=[300x512x700] fidelity=events"),
        "chip=tile32 $SMALL workload=gemm workload.shapes=[200x256x300] fidelity=cycles",
        "chip=tile_gh200 workload=gemm workload.shapes=[3x512x96] mapping.split_k=16",
        "chip=tile32 $SMALL workload=gemm workload.shapes=[3x512x96] mapping.split_k=4 fidelity=events",
        "chip=tile32 $SMALL workload=gemm workload.shapes=[3x512x96] mapping.split_k=2 fidelity=cycles",
        "chip=tile32 workload=gemm workload.shapes=[16x4096x1024] mapping.split_k=32 fidelity=events@4",
        "chip=tile32 workload=gemm workload.shapes=[4096x512x4096] fidelity=analytical@4",
        "chip=tile32 workload=gemm workload.shapes=[4096x512x4096] fidelity=events@4",
        "chip=tile32 workload=gemm workload.shapes=[4096x512x4096] fidelity=cycles@4",
    ),
    "stream": (
        "chip=hbm3 workload=stream $PATTERNS workload.writes=[0,0.3] workload.requests=200",
        "chip=hbm2 workload=stream $PATTERNS workload.requests=200 mapping.requesters=4 mapping.window=2",
        "chip=hbm4 workload=stream workload.patterns=[sequential,chunk512] workload.requests=200",
        "chip=hbm2_legacy workload=stream workload.patterns=[sequential,chunk512] workload.requests=200",
        "chip=tile32 workload=stream workload.patterns=[sequential,random] workload.requests=200",
        "chip=hbm3 workload=stream $PATTERNS workload.writes=[0.3] workload.requests=200 fidelity=events",
        "chip=hbm2_legacy workload=stream workload.patterns=[random] workload.requests=200 mapping.requesters=4 "
        "mapping.window=2 fidelity=events",
        "chip=tile32 workload=stream workload.patterns=[sequential,random] workload.requests=50 "
        "mapping.requesters=8 fidelity=events",
    ),
    "traffic": (
        "chip=mesh8 workload=traffic workload.rates=[0.1,0.3] "
        "workload.traffic=[uniform,transpose,tornado,hotspot1] workload.flits=[1,4]",
        "chip=mesh8_fast workload=traffic workload.rates=[0.2] workload.traffic=[bit_complement,neighbour,hotspot4]",
        "chip=mesh8 workload=traffic chip.faults=1-2+9 workload.rates=[0.1]",
        "chip=mesh8 workload=traffic workload.rates=[0.1] fidelity=cycles",
        "chip=mesh8_fast workload=traffic chip.mesh.rows=4 chip.mesh.cols=4 workload.period=100 "
        "workload.packets=50 chip.faults=1-2+9 workload.traffic=[uniform,hotspot4] workload.flits=[3] "
        "mapping.order=yx fidelity=cycles",
    ),
    "collective": (
        "chip=tile32 workload=collective workload.pattern=[multicast,reduce,allreduce]",
        "chip=tile_gh200 $EXCHANGES mapping.collective=rings workload.bytes=[4KiB]",
        "chip=npu64 workload=collective workload.pattern=[multicast,allreduce] workload.group_axis=column "
        "workload.root=1 workload.combine=max workload.group=4x2",
        "chip=tile32 chip.mesh.rows=4 chip.mesh.cols=6 workload=collective workload.pattern=[multicast,reduce] "
        "workload.bytes=[4KiB] fidelity=events",
        "chip=tile32 chip.mesh.rows=4 chip.mesh.cols=6 workload=collective workload.pattern=[multicast,reduce] "
        "workload.bytes=[4KiB] fidelity=cycles",
        "chip=tile32 $SMALL $EXCHANGES mapping.collective=direct workload.bytes=[4KiB] fidelity=events",
        "chip=tile32 $SMALL $EXCHANGES mapping.collective=direct workload.bytes=[4KiB] fidelity=cycles",
        "chip=npu64 workload=collective workload.pattern=[allreduce] workload.group_axis=row workload.bytes=[4KiB] "
        "mapping.collective=tree fidelity=events",
        "chip=npu64 workload=collective workload.pattern=[allreduce] workload.group_axis=row workload.bytes=[4KiB] "
        "mapping.collective=tree fidelity=cycles",
        "chip=tile32 workload=collective workload.pattern=[multicast] workload.bytes=[1KiB] chip.mesh.rows=6 "
        "chip.mesh.cols=6 chip.faults=1-2 fidelity=cycles",
        "chip=tile32 workload=collective workload.pattern=[multicast,reduce] workload.bytes=[4KiB] fidelity=analytical@4",
        "chip=tile32 workload=collective workload.pattern=[multicast,reduce] workload.bytes=[4KiB] fidelity=events@4",
        "chip=tile32 workload=collective workload.pattern=[multicast,reduce] workload.bytes=[4KiB] fidelity=cycles@4",
    ),
    "attention": (
        "chip=tile32 workload=attention workload.keys=[256,1000] workload.heads=8 workload.kv_heads=2",
        "chip=npu64 workload=attention workload.keys=[600] workload.queries=2 workload.causal=true workload.heads=8",
        "chip=tile_gh200 $LATENT workload.keys=[600] workload.queries=2",
        Slow("chip=tile32 workload=attention fidelity=events"),
        Slow(
            "chip=tile32 workload=attention workload.keys=[1000] workload.heads=8 workload.kv_heads=2 workload.causal=true "
            "workload.window=[0,200]"
        ),
        "chip=tile32 $SMALL workload=attention workload.keys=[256] workload.heads=4 workload.causal=true workload.window=[100] "
        "fidelity=events",
        "chip=tile32 $SMALL workload=attention workload.keys=[256] workload.heads=4 workload.kv_heads=2 fidelity=events",
        "chip=tile32 $SMALL workload=attention workload.keys=[256] workload.heads=4 workload.kv_heads=2 fidelity=cycles",
        "chip=tile32 $SMALL $LATENT workload.keys=[256] workload.queries=2 workload.heads=4 "
        "mapping.dataflow=flat_tree fidelity=events",
        "chip=tile32 $SMALL $LATENT workload.keys=[256] workload.queries=2 workload.heads=4 "
        "mapping.dataflow=flat_tree fidelity=cycles",
        "chip=tile32 $SMALL workload=attention workload.keys=[256] workload.heads=4 $FP8",
        "chip=tile32 $SMALL workload=attention workload.keys=[256] workload.heads=4 $FP8 fidelity=events",
        "chip=tile_gh200 $LATENT workload.keys=[4096] workload.queries=2 workload.batch=8 $FP8 mapping.dataflow=flash_split",
        "chip=tile_gh200 $LATENT workload.keys=[4096] workload.queries=2 workload.batch=8 mapping.dataflow=flash_split "
        "+mapping.kv_splits=5 fidelity=events",
        "chip=tile_gh200 $LATENT workload.keys=[4096] workload.queries=2 workload.batch=64 $FP8 mapping.dataflow=flat_rows",
        "chip=tile32 $SMALL workload=attention workload.keys=[512] workload.heads=4 mapping.dataflow=flat_rows "
        "mapping.rows=2 mapping.cols=2 mapping.queries=64 mapping.keys=64 fidelity=events",
        "chip=tile32 workload=attention fidelity=analytical@4",
        "chip=tile32 workload=attention fidelity=events@4",
        Slow("chip=tile32 workload=attention fidelity=cycles@8"),
    ),
    "serving": (
        "chip=npu_dse model=qwen3_1b7 mapping.both.tp=8 $SERVED",
        "chip=npu_dse model=qwen3_1b7 mapping.both.tp=8 $SERVED mapping.serving.policy=chunked_prefill",
        Slow("chip=wse2 model=llama3_8b $SERVED mapping.serving.policy=chunked_prefill"),
        Slow("chip=h200 model=gemma3_12b $SERVED mapping.both.tp=2"),
        Slow("chip=h200 model=qwen35_27b $SERVED mapping.both.tp=4 mapping.serving.prefill_instances=1"),
        Slow("chip=npu64 model=gemma3_12b $SERVED"),
        "chip=ascend910b model=deepseek_v2_lite mapping.both.tp=8 $SERVED workload.arrivals=constant workload.rate=100Hz",
        "chip=npu_dse model=qwen3_1b7 mapping.both.tp=8 $SERVED mapping.both.allreduce=tree chip.network.ports=3",
        "chip=mi300x model=qwen3_8b $SERVED mapping.both.tp=8 mapping.both.allreduce=ktree mapping.both.ktree_k=1",
        "chip=mi300x model=qwen3_8b $SERVED mapping.both.tp=8 mapping.both.allreduce=two_level",
        "chip=a100 mapping=serving model=mixtral_8x7b mapping.both.tp=8 $SERVED workload.arrivals=gamma workload.cv=2 "
        "mapping.serving.prefill_instances=1",
        Slow("chip=wse2 model=qwen3_1b7 $SERVED"),
        "chip=wse2 model=qwen3_1b7 $SERVED mapping.precision.kv=mxfp4",
        "chip=wse2 model=llama3_8b $SERVED mapping.prefill.rows=660 mapping.kv_placement=concat "
        "mapping.serving.policy=chunked_prefill "
        "mapping.serving.max_batched_tokens=200",
        Slow("chip=dojo model=mixtral_8x7b model.mixtral_8x7b.layers=4 $SERVED mapping.serving.prefill_instances=1"),
        Slow(
            "chip=tile32 $SMALL model=qwen3_1b7 model.qwen3_1b7.layers=2 workload=serving workload.requests=4 "
            "workload.prompt=60 "
            "workload.output=4 mapping.serving.max_batch_size=4"
        ),
        Slow(
            "chip=tile32 $SMALL model=qwen3_1b7 model.qwen3_1b7.layers=2 workload=serving workload.requests=4 "
            "workload.prompt=60 "
            "workload.output=4 mapping.serving.max_batch_size=4 mapping.both.attention.dataflow=flat_rows"
        ),
        "chip=wafer64 chip.dies.rows=1 chip.dies.cols=2 $SMALL model=qwen3_1b7 model.qwen3_1b7.layers=2 mapping.both.ep=1 "
        "mapping.both.tp=2 mapping.serving.max_batch_size=2 mapping.serving.max_batched_tokens=64 "
        "workload=serving workload.requests=2 "
        "workload.prompt=40 workload.output=3 fidelity=events",
        "chip=h800_ep chip.dies.rows=2 chip.dies.cols=4 chip.nodes.size=4 model=deepseek_v2_lite "
        "model.deepseek_v2_lite.layers=4 mapping.both.ep=8 mapping.serving.max_batch_size=16 "
        "mapping.serving.max_batched_tokens=1024 $SERVED "
        "fidelity=events",
        Slow(
            "chip=wafer64 chip.dies.rows=1 chip.dies.cols=2 $SMALL model=qwen3_1b7 model.qwen3_1b7.layers=2 mapping.both.ep=1 "
            "mapping.both.tp=2 workload=serving workload.requests=4 workload.prompt=60 workload.output=4 "
            "mapping.serving.max_batch_size=4 "
            "mapping.serving.max_batched_tokens=256"
        ),
        "chip=h800_ep chip.dies.rows=2 chip.dies.cols=4 chip.nodes.size=4 model=deepseek_v2_lite "
        "model.deepseek_v2_lite.layers=4 mapping.both.ep=4 mapping.serving.max_batch_size=64 "
        "mapping.serving.max_batched_tokens=2048 "
        "mapping.serving.prefill_instances=1 $SERVED",
        "chip=npu64 model=qwen3_1b7 $SERVED",
        "chip=npu64 model=qwen3_30b_a3b $SERVED mapping.both.experts=whole mapping.both.tp=8 mapping.both.pp=2",
        "chip=npu256 model=mixtral_8x7b $SERVED mapping.both.pp=16 mapping.serving.prefill_cores=128 "
        "mapping.serving.arrangement=dp_first chip.decode.rows=32",
        Slow("chip=npu64 model=deepseek_v2_lite mapping=npu_serving_wsc_llm mapping.both.pp=8 $SERVED"),
        "chip=npu64 model=qwen3_30b_a3b $SERVED mapping.both.experts=whole mapping.both.tp=8 mapping.both.pp=2 $EXPERTS",
        "chip=b200 model=qwen3_30b_a3b mapping.both.tp=8 $SERVED $EXPERTS",
        "chip=npu_dse model=qwen3_1b7 mapping.both.tp=8 $SERVED mapping.serving.prefill_instances=1 "
        "mapping.serving.prefill_policy=chunked_prefill "
        "mapping.serving.prefix_cache=shared workload.sessions={turns:2,think:1s}",
        "chip=h200 model=qwen35_27b $SERVED mapping.both.tp=4 workload.speculation={tokens:1,acceptance:0.7}",
        Slow(
            "chip=wse2 model=qwen3_1b7 $SERVED mapping.serving.prefill_instances=1 "
            "mapping.serving.prefill_policy=chunked_prefill"
        ),
        Slow(
            "chip=tile32 $SMALL model=qwen3_1b7 model.qwen3_1b7.layers=2 workload=serving workload.requests=4 "
            "workload.prompt=60 "
            "workload.output=4 mapping.serving.max_batch_size=4 mapping.serving.instances=2 "
            "mapping.serving.prefill_instances=1 mapping.serving.routing=cache_aware"
        ),
        Slow("chip=npu64 model=qwen3_1b7 $SERVED mapping.serving.routing=cache_aware"),
        Slow("chip=npu64 mapping=npu_serving_prefetch model=qwen3_1b7 $SERVED mapping.both.tp=16"),
        Slow("chip=npu64 $FEW fidelity=events"),
        Slow("chip=npu64 mapping=npu_serving_wsc_llm $FEW fidelity=events"),
        Slow("chip=npu64 $FEW fidelity=cycles"),
    ),
}
"""Overrides by judge, those of kernels by themselves by kernel and machine; ``fidelity=`` among them, else the closed form."""


def overrides(question: str) -> tuple[str, ...]:
    """The overrides of a question, without its fidelity.

    Formats are drawn that no inference engine has: where a question names none, its chip runs without one.
    """
    spelt = Template(question).substitute(SHORT).split()
    engine = () if "inference_engine=" in question else ("inference_engine=none",)
    return (*(word for word in spelt if not word.startswith("fidelity=")), *engine)


def fidelity(question: str) -> str:
    """The fidelity of a question."""
    return question.partition("fidelity=")[2].partition(" ")[0] or "analytical"


def judge(design: Design, case: WorkloadCase) -> str:
    """Who answers for a design and a case."""
    return READERS[software_of(design.mapping), type(case)]


def cell(design: Design, case: WorkloadCase, word: str) -> tuple[str, str, str]:
    """The kinds of mapping and case, the judge, and the fidelity, of a question; of parts of all sizes alike."""
    name, (word, part, _) = judge(design, case), word.partition(SUBMESH_MARK)
    return (f"{software_of(design.mapping)} {type(case).__name__}", name, word + part)


def cells() -> set[tuple[str, str, str]]:
    """Every cell that there is, from the registries."""
    found_cells = set()
    for (software, case), name in READERS.items():
        known, parts, formulas = fidelities_of(software, name)
        words = known[:1] if case in formulas else (*known, *(word + SUBMESH_MARK for word in parts))
        found_cells |= {(f"{software} {case.__name__}", name, word) for word in words}
    return found_cells


def fidelities_of(software: str, name: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[type, ...]]:
    """Fidelities of some software, those on a submesh, and cases that only formulas evaluate."""
    if name == "kernels":
        kernel = kernels.kernel_workload_of_software(software)
        return kernel.fidelities, kernel.fidelities if kernel.submesh_text else (), kernel.unsimulated_cases
    if name == "serving":
        return serving.serving_layout_of_software(software).FIDELITIES, (), ()
    layout = layout_of_software(software)
    return layout.FIDELITIES, layout.SUBMESH_FIDELITIES if layout.SUBMESH_TEXT else (), ()
