"""The report of a study: one self-contained HTML page, and the one room of Plotly."""

from dse.report.page import write

__all__ = ["write"]
