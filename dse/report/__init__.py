"""The report of one study or several, and pages of other answers: one self-contained HTML file each, drawn by Plotly."""
