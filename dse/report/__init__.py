"""The report of one study or several: one self-contained HTML page, and the one room of Plotly."""

from dse.report.data import Part, payload
from dse.report.page import Live, place, write, write_page

__all__ = ["Live", "Part", "payload", "place", "write", "write_page"]
