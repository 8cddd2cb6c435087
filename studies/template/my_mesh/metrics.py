"""A metric of our own, of other metrics and of the design; worked out for many designs at a time."""

from dse.evaluators import Metric

CORE_SHARE = Metric(
    unit="1",
    better="min",
    definition="share of the wafer's cores that a product is laid out on",
    needs=("cores",),
    worth=lambda metrics, design: metrics["cores"] / (design.chip.mesh.rows * design.chip.mesh.cols),
)
