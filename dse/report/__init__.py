"""The report of a study: one self-contained HTML page, and the one room of Plotly."""

from dse.report.page import rewrite, write

__all__ = ["rewrite", "write"]
