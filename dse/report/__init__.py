"""Reports of studies and pages of other answers: one self-contained HTML file each, with Plotly."""
