"""Figure of this study: cycles of each dataflow by resource, one panel per layer, as SVG."""

from collections.abc import Mapping

COLOURS = {
    "matrix": "#00798c",
    "vector": "#4da6d8",
    "hbm": "#e06a30",
    "multicast": "#6f5bc0",
    "reduction": "#4f9d52",
    "synchronisation": "#d8a021",
}
BAR, GAP, HIGH, LEFT, TOP = 22, 6, 190, 10, 34


def draw_figure(panels: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """SVG of stacked bars, one panel per layer.

    Args:
        panels: cycles by layer, dataflow and resource; each panel is as high as its longest bar.
    """
    parts, x0 = [], LEFT
    for title, bars in panels.items():
        most = max(sum(spent.values()) for spent in bars.values())
        parts.append(f'<text x="{x0}" y="{TOP - 18}" font-weight="bold">{title}</text>')
        parts.append(f'<text x="{x0}" y="{TOP - 5}" fill="#777">to {most / 1e3:,.0f}k cycles</text>')
        for place, (name, spent) in enumerate(bars.items()):
            x, y = x0 + place * (BAR + GAP), float(TOP + HIGH)
            for part, colour in COLOURS.items():
                high = HIGH * spent.get(part, 0.0) / most
                y -= high
                parts.append(
                    f'<rect x="{x}" y="{y:.1f}" width="{BAR}" height="{high:.1f}" fill="{colour}"/>' if high > 0.05 else ""
                )
            at = f"{x + BAR / 2 + 4:.0f} {TOP + HIGH + 8}"
            parts.append(f'<text transform="translate({at}) rotate(-60)" text-anchor="end">{name}</text>')
        x0 += len(bars) * (BAR + GAP) + 22
    for place, (part, colour) in enumerate(COLOURS.items()):
        x, y = LEFT + place * 120, TOP + HIGH + 84
        parts.append(
            f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/><text x="{x + 17}" y="{y}">{part}</text>'
        )
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="#333"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {x0} {TOP + HIGH + 96}" width="{x0}" {style}>'
    return (
        "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *(part for part in parts if part), "</svg>"]) + "\n"
    )
