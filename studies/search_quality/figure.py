"""Figure of this study: share of the exact hypervolume by evaluations, one panel per space, as SVG."""

from pathlib import Path

import pandas as pd

COLOURS = {
    "local": "#d1495b",
    "local, promoted": "#3a7d44",
    "halving": "#e0a030",
    "nsga2": "#00798c",
    "tpe": "#8d6a9f",
    "qmc": "#b0a080",
    "random": "#9a9a9a",
    "optuna nsga2": "#00798c",
    "optuna tpe": "#8d6a9f",
    "optuna gp": "#333333",
}
WIDE, HIGH, LEFT, TOP = 300, 230, 46, 34


def draw_figure(path: Path) -> str:
    """SVG of ``curves.csv``, means over seeds, dashed for plain Optuna, with the target line."""
    frame = pd.read_csv(path)
    names = list(frame["space"].unique())
    parts = []
    for place, name in enumerate(names):
        rows = frame[frame["space"] == name]
        most, x0 = rows["evaluations"].max(), LEFT + place * (WIDE + 40)

        def at(count: float, share: float, most: float = most, x0: float = x0) -> str:
            return f"{x0 + WIDE * count / most:.1f},{TOP + HIGH * (1 - share):.1f}"

        for share in (0, 0.25, 0.5, 0.75, 1):
            y = TOP + HIGH * (1 - share)
            parts.append(f'<line x1="{x0}" x2="{x0 + WIDE}" y1="{y}" y2="{y}" stroke="#ddd"/>')
            parts.append(f'<text x="{x0 - 6}" y="{y + 4}" text-anchor="end">{share:.0%}</text>' if place == 0 else "")
        y = TOP + HIGH * 0.01
        parts.append(f'<line x1="{x0}" x2="{x0 + WIDE}" y1="{y}" y2="{y}" stroke="#444" stroke-dasharray="2 3"/>')
        parts.append(f'<text x="{x0}" y="{TOP - 10}" font-weight="bold">{name}</text>')
        for count in (most // 2, most):
            x = x0 + WIDE * count / most
            parts.append(f'<text x="{x}" y="{TOP + HIGH + 16}" text-anchor="middle">{count:,}</text>')
        for sampler, colour in COLOURS.items():
            own = rows[rows["sampler"] == sampler]
            points = " ".join(at(count, share) for count, share in zip(own["evaluations"], own["share"], strict=True))
            dash = ' stroke-dasharray="6 4"' if sampler.startswith("optuna") else ""
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
    for place, (sampler, colour) in enumerate(COLOURS.items()):
        x, y = LEFT + place * 140, TOP + HIGH + 44
        dash = ' stroke-dasharray="6 4"' if sampler.startswith("optuna") else ""
        parts.append(f'<line x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{x + 27}" y="{y + 4}">{sampler}</text>')
    width, height = LEFT + len(names) * (WIDE + 40), TOP + HIGH + 60
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="#333"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" {style}>'
    background = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, background, *(part for part in parts if part), "</svg>"]) + "\n"
