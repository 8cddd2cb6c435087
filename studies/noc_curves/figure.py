"""Figure of this study: latency against accepted load, one panel per packet length, as SVG."""

from pathlib import Path

import pandas as pd

COLOURS = {
    "uniform": "#00798c",
    "transpose": "#d1495b",
    "bit_complement": "#8d6a9f",
    "tornado": "#b0a080",
    "neighbour": "#5b8c5a",
    "hotspot4": "#9a9a9a",
}
WIDE, HIGH, LEFT, TOP, MOST = 380, 230, 46, 34, 150.0
DASHES = ("", ' stroke-dasharray="2 3"', ' stroke-dasharray="7 4"')


def draw_figure(path: Path) -> str:
    """SVG of latency in cycles up to `MOST`, with a dash pattern per kind of router."""
    frame = pd.read_csv(path)
    far, parts = float(frame["accepted"].max()), []
    for place, flits in enumerate(frame["flits"].unique()):
        x0 = LEFT + place * (WIDE + 40)
        for latency in (0, 50, 100, 150):
            y = TOP + HIGH * (1 - latency / MOST)
            parts.append(f'<line x1="{x0}" x2="{x0 + WIDE}" y1="{y}" y2="{y}" stroke="#ddd"/>')
            parts.append(f'<text x="{x0 - 6}" y="{y + 4}" text-anchor="end">{latency}</text>' if place == 0 else "")
        parts.append(f'<text x="{x0}" y="{TOP - 10}" font-weight="bold">packets of {flits}: cycles</text>')
        for rate in (0.0, 0.1, 0.2, 0.3, 0.4):
            x = x0 + WIDE * rate / far
            parts.append(f'<text x="{x:.1f}" y="{TOP + HIGH + 16}" text-anchor="middle">{rate:g}</text>')
        for dash, routers in zip(DASHES, frame["routers"].unique(), strict=True):
            for pattern, colour in COLOURS.items():
                rows = frame[(frame["flits"] == flits) & (frame["routers"] == routers) & (frame["pattern"] == pattern)]
                points = " ".join(
                    f"{x0 + WIDE * accepted / far:.1f},{TOP + HIGH * (1 - min(latency, MOST) / MOST):.1f}"
                    for accepted, latency in zip(rows["accepted"], rows["latency"], strict=True)
                )
                parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
    for place, (name, colour) in enumerate(COLOURS.items()):
        x, y = LEFT + place * 130, TOP + HIGH + 44
        parts.append(f'<line x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 27}" y="{y + 4}">{name}</text>')
    for place, (dash, routers) in enumerate(zip(DASHES, frame["routers"].unique(), strict=True)):
        x, y = LEFT + place * 200, TOP + HIGH + 66
        parts.append(f'<line x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}" stroke="#333" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{x + 27}" y="{y + 4}">{routers}</text>')
    width, height = LEFT + 2 * (WIDE + 40), TOP + HIGH + 82
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="#333"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" {style}>'
    background = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, background, *(part for part in parts if part), "</svg>"]) + "\n"
