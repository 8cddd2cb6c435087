"""Findings on the papers' chips at the load that each carries: alone, as fleets and as pools."""

from dse.commands.notebook_api import find_study
from dse.studies.designs import compose_study, metric_cells
from dse.studies.markdown_table import table

DEMANDS = (1, 10, 100)
"""Requests a second of fleets."""

NODES = ("n5", "n7")

_WAFERS = ("chips=[wse2]", "+part@chip=wafers_ethernet", "mapping.prefill.rows=750", "mapping.decode.rows=750")
_DIES = ("chips=[npu_dse]", "mapping.both.tp=2")
_LINK = "+part@pools.link=pool_link_400g"
_TILES_DECODE = ("chips=[tile_gh200]", "pools.prefill.chip=npu_dse", _LINK)
BEYOND_ONE_CHIP = {
    "4 WSE-2 in a chain": (*_WAFERS, "chip.chain.chips=4"),
    "8 WSE-2 in a chain": (*_WAFERS, "chip.chain.chips=8"),
    "PRESERVE's dies, TP 2": _DIES,
    "1 such pair prefills, 1 decodes": (*_DIES, "mapping.serving.prefill_instances=1"),
    "3 such pairs prefill, 1 decodes": (*_DIES, "mapping.serving.prefill_instances=3"),
    "1 such pair prefills, 1 of FlatAttention's chips decodes": (*_TILES_DECODE, "mapping.serving.prefill_instances=1"),
    "3 such pairs prefill, 1 of FlatAttention's chips decodes": (*_TILES_DECODE, "mapping.serving.prefill_instances=3"),
    "4 such pairs prefill, 1 of FlatAttention's chips decodes": (*_TILES_DECODE, "mapping.serving.prefill_instances=4"),
    "1 of FlatAttention's chips with 192 GB prefills, 1 pair decodes": (
        *_DIES, "pools.prefill.chip=tile_gh200", "pools.prefill.chip.hbm.capacity='192 GB'", _LINK,
    ),
}  # fmt: skip
"""Systems of several wafers, and of separate pools that are alike or not, by overrides of the study."""


def finding() -> str:
    """Tables of the papers' chips, simulated, and of fleets of them in the steady state."""
    study = find_study("mesh_llm")
    names = [*study.objectives, "max_rate", "ttft_p90", "tpot"]
    rows = []
    for node in NODES:
        of_node = find_study("mesh_llm", f"technology@chip.technology={node}")
        for name, values in of_node.points.items():
            design = of_node.question.space.design_at(values)
            rows.append(
                [name, str(values["chip"]), node, *metric_cells(design, of_node.question.workload, names, "analytical")]
            )
    text = "The papers' chips, as they are, at the load that each carries (simulated):\n\n"
    text += table(["paper", "chip", "node", *names], rows)
    whole = ["fleet_systems", "fleet_throughput_per_mm2", "energy_per_token", "price_per_mtoken"]
    rows = []
    for demand in DEMANDS:
        fleet = find_study("mesh_llm", f"workload.demand='{demand} Hz'")
        for name, values in fleet.points.items():
            cells = metric_cells(fleet.question.space.design_at(values), fleet.question.workload, whole, "steady_state")
            rows.append([f"{demand} Hz", name, *cells])
    text += f"\n\nAs fleets of whole systems (steady state):\n\n{table(['demand', 'paper', *whole], rows)}"
    names = [*study.objectives, "max_rate", "ttft_p90", "tpot", "peak_power", "system_price"]
    rows = []
    for name, words in BEYOND_ONE_CHIP.items():
        question = compose_study("mesh_llm", *words)
        rows.append([name, *metric_cells(question.base, question.workload, names, "steady_state")])
    return f"{text}\n\nSeveral wafers, and unlike pools (steady state):\n\n{table(['system', *names], rows)}"
