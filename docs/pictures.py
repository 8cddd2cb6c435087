"""python docs/pictures.py [NAME...]       # draws the pictures of the documents: docs/assets/*.svg.

Numbers in block diagrams are those of the presets; the front is that of a small run of the quickstart study. Widths are those
of a phone, so that text stays readable there. Colours follow the reader's light or dark background.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import chdir
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

import dse
from dse.config.compose import compose

ASSETS = Path(__file__).resolve().parent / "assets"
WIDTH = 390
STYLE = """
  .card { fill: #fcfcfb; }
  text { fill: #20242a; font: 13px system-ui, sans-serif; }
  .small { font-size: 11.5px; }
  .bold { font-weight: 600; }
  .line { stroke: #5b6470; fill: none; stroke-width: 1.5; }
  .box { stroke: #5b6470; stroke-width: 1; fill: #eef1f4; }
  .a { fill: #cfe3f5; }
  .b { fill: #fbe0c3; }
  .c { fill: #d5ecd4; }
  .d { fill: #e6d9f0; }
  .e { fill: #f7d6d6; }
  .dot { fill: #9aa4af; }
  .mark { fill: #c2410c; }
  .front { stroke: #1d6fb8; fill: none; stroke-width: 2; }
  .middle { text-anchor: middle; }
  .end { text-anchor: end; }
  .tip { fill: #5b6470; }
  .halo { paint-order: stroke; stroke: #fcfcfb; stroke-width: 4px; stroke-linejoin: round; }
  .tiny { font-size: 10px; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #1b1e24; }
    text { fill: #e6e8eb; }
    .line { stroke: #98a2ad; }
    .box { stroke: #98a2ad; fill: #2a2f37; }
    .tip { fill: #98a2ad; }
    .a { fill: #1f4a70; }
    .b { fill: #6d4517; }
    .c { fill: #27552b; }
    .d { fill: #4d3766; }
    .e { fill: #6b2f2f; }
    .dot { fill: #5d6873; }
    .mark { fill: #fb923c; }
    .front { stroke: #60a5fa; }
    .halo { stroke: #1b1e24; }
  }"""
GROUPS = "abcd"
SMALL = ("screen.limit=4096", "search.budget=200", "workers=serial")
"""What makes the quickstart study short for the picture of its front."""


class Picture:
    """Shapes and texts of one SVG, with a card behind them."""

    def __init__(self, height: float, title: str) -> None:
        self.height, self.title = height, title
        self.shapes: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, look: str = "") -> None:
        """A rectangle with rounded corners; `look` is a class of the style."""
        self.shapes.append(f'<rect class="box {look}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3"/>')

    def text(self, x: float, y: float, words: str, look: str = "") -> None:
        """Words that begin at a point, or end or have their middle there by `look`."""
        self.shapes.append(f'<text class="{look}" x="{x:g}" y="{y:g}">{escape(words)}</text>')

    def add_labelled_box(
        self, x: float, y: float, width: float, height: float, words: str | Sequence[str], look: str = ""
    ) -> None:
        """A rectangle with lines of text in its middle."""
        self.box(x, y, width, height, look)
        lines = [words] if isinstance(words, str) else words
        for i, line in enumerate(lines):
            self.text(x + width / 2, y + height / 2 + 4.5 + 15 * (i - (len(lines) - 1) / 2), line, "middle")

    def line(self, *points: tuple[float, float], tip: bool = False, look: str = "line") -> None:
        """A line through points, with an arrowhead at its end if `tip`."""
        head = ' marker-end="url(#tip)"' if tip else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.shapes.append(f'<polyline class="{look}" points="{path}"{head}/>')

    def dot(self, x: float, y: float, radius: float, look: str) -> None:
        """A disc in a class of the style."""
        self.shapes.append(f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>')

    def svg(self) -> str:
        """Text of the SVG file of the picture."""
        size = f'width="{WIDTH * 1.35:g}" viewBox="0 0 {WIDTH} {self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        tip = '<path class="tip" d="M0,0 L8,4 L0,8 z"/>'
        tip = f'<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">{tip}</marker></defs>'
        card = f'<rect class="card" width="{WIDTH}" height="{self.height:g}" rx="8"/>'
        return "\n".join(
            [head, f"<title>{escape(self.title)}</title>", f"<style>{STYLE}</style>", tip, card, *self.shapes, "</svg>\n"]
        )


def preset(chip: str, address: str) -> Any:
    """A setting of a preset, as its file states it."""
    node = compose([f"chip={chip}"])["chip"]
    for part in address.split("."):
        node = node[part]
    return node["value"] if isinstance(node, dict) else node


def machine_shared_cache() -> Picture:
    """Four dies with cores, L2 and HBM, and links between them."""
    picture = Picture(300, "Shared-cache dies, each with L2 and HBM, joined by links")
    picture.text(14, 24, "Shared-cache dies", "bold")
    for row in range(2):
        for column in range(2):
            x, y = 14 + column * 192, 42 + row * 112
            picture.box(x, y, 170, 92)
            for core in range(8):
                picture.box(x + 8 + core * 19.5, y + 8, 16, 22, "a")
            picture.add_labelled_box(x + 8, y + 36, 153, 21, "L2 cache", "c")
            picture.add_labelled_box(x + 8, y + 63, 153, 21, "HBM", "b")
            if row == 0:
                picture.line((x + 85, y + 92), (x + 85, y + 112))
        picture.line((184, 88 + row * 112), (206, 88 + row * 112))
    cores, l2 = preset("h100", "cores"), preset("h100", "l2.size")
    hbm, bandwidth = preset("h100", "hbm.capacity"), preset("h100", "hbm.bandwidth")
    picture.text(14, 270, f"h100: {cores} cores, {l2} of L2, {hbm} of HBM at {bandwidth}.", "small")
    picture.text(14, 287, "Collectives over the links join the parts of a layer.", "small")
    return picture


def machine_tiles() -> Picture:
    """A mesh of tiles with channels at its south edge, and one tile opened."""
    picture = Picture(330, "A mesh of tiles with HBM channels at its edges")
    picture.text(14, 24, "Tiles in a mesh", "bold")
    for i in range(6):
        picture.line((24, 52 + i * 34), (214, 52 + i * 34))
        picture.line((34 + i * 34, 42), (34 + i * 34, 246))
    for row in range(6):
        for column in range(6):
            picture.box(24 + column * 34, 42 + row * 34, 20, 20, "a")
    for column in range(6):
        picture.box(24 + column * 34, 246, 20, 22, "b")
    picture.text(124, 285, "HBM channels", "middle")
    picture.line((214, 86), (240, 74), tip=True)
    picture.box(242, 42, 136, 142)
    picture.text(310, 60, "one tile", "middle bold")
    for i, (words, look) in enumerate(
        [("matrix engine", "a"), ("vector engine", "d"), ("local memory", "c"), ("DMA, router", "b")]
    ):
        picture.add_labelled_box(252, 69 + i * 28, 116, 23, words, look)
    rows, columns = preset("tile_gh200", "mesh.rows"), preset("tile_gh200", "mesh.cols")
    sram, channels = preset("tile_gh200", "tile.sram"), preset("tile_gh200", "hbm.channels")
    for i, words in enumerate(["All tiles work on one", "operator after the", "other."]):
        picture.text(242, 208 + 16 * i, words, "small")
    picture.text(14, 312, f"tile_gh200: {rows} x {columns} tiles with {sram} each, {channels} HBM channels.", "small")
    return picture


def machine_npu() -> Picture:
    """A mesh of cores, in four groups that are stages."""
    picture = Picture(330, "A mesh of NPU cores in groups, each group a pipeline stage")
    picture.text(14, 24, "Pipelines of NPU cores", "bold")
    for group in range(4):
        x, y = 14 + (group in (1, 2)) * 128, 40 + (group > 1) * 122
        picture.box(x, y, 112, 106, GROUPS[group])
        for core in range(16):
            picture.box(x + 10 + core % 4 * 24, y + 8 + core // 4 * 19, 19, 14)
        picture.text(x + 56, y + 99, f"stage {group + 1}", "middle small")
    picture.line((126, 93), (141, 93), tip=True)
    picture.line((198, 146), (198, 161), tip=True)
    picture.line((142, 215), (127, 215), tip=True)
    picture.box(268, 40, 110, 122)
    picture.text(323, 58, "one core", "middle bold")
    for i, (words, look) in enumerate([("systolic array", "a"), ("local memory", "c"), ("own channel", "b")]):
        picture.add_labelled_box(276, 67 + i * 30, 94, 25, words, look)
    for i, words in enumerate(["Layers 1 to n in", "stage 1, and so on.", "A group divides", "each product."]):
        picture.text(268, 184 + 16 * i, words, "small")
    rows, columns, sram = preset("npu64", "mesh.rows"), preset("npu64", "mesh.cols"), preset("npu64", "tile.sram")
    hbm = preset("npu64", "hbm.capacity")
    picture.text(14, 296, f"npu64: {rows} x {columns} cores, each with {sram} of local memory", "small")
    picture.text(14, 312, f"and {hbm} of HBM behind a channel of its own.", "small")
    return picture


def machine_wafer() -> Picture:
    """A wafer in regions with layers, and one core opened."""
    picture = Picture(320, "A wafer of cores, divided into regions with layers")
    picture.text(14, 24, "A wafer of cores", "bold")
    picture.box(14, 40, 232, 212)
    for region in range(6):
        row, column = divmod(region, 3)
        column = column if row == 0 else 2 - column
        x, y = 22 + column * 74, 48 + row * 101
        picture.box(x, y, 68, 94, GROUPS[region % 4])
        for core in range(20):
            picture.box(x + 7 + core % 5 * 11.5, y + 10 + core // 5 * 13, 8, 9)
        picture.text(x + 34, y + 80, f"region {region + 1}", "middle small")
    for x, y, to_x, to_y in [
        (90, 95, 97, 95),
        (164, 95, 171, 95),
        (204, 142, 204, 150),
        (170, 196, 163, 196),
        (96, 196, 89, 196),
    ]:
        picture.line((x, y), (to_x, to_y), tip=True)
    picture.box(262, 40, 116, 122)
    picture.text(320, 58, "one core", "middle bold")
    for i, (words, look) in enumerate([("multiply-add", "a"), ("local memory", "c"), ("router", "b")]):
        picture.add_labelled_box(270, 67 + i * 30, 100, 25, words, look)
    for i, words in enumerate(["Weights and KV", "caches stay in", "local memory."]):
        picture.text(262, 186 + 16 * i, words, "small")
    rows, columns, sram = preset("wse2", "mesh.rows"), preset("wse2", "mesh.cols"), preset("wse2", "core.sram")
    picture.text(14, 276, f"wse2: {rows} x {columns} = {rows * columns:,} cores of {sram}.", "small")
    picture.text(14, 293, "wse2_hbm has stacks of HBM along the south edge.", "small")
    return picture


def machine_many_dies() -> Picture:
    """Dies in rows and columns with links; each has attention of its own and some experts."""
    picture = Picture(330, "Dies of tiles or caches, in rows and columns, with links between them")
    picture.text(14, 24, "Many dies", "bold")
    for row in range(3):
        picture.line((54, 80 + row * 72), (336, 80 + row * 72))
    for column in range(4):
        picture.line((54 + column * 94, 80), (54 + column * 94, 224))
    for row in range(3):
        for column in range(4):
            x, y, die = 14 + column * 94, 52 + row * 72, row * 4 + column
            picture.box(x, y, 80, 56)
            picture.add_labelled_box(x + 5, y + 5, 70, 20, "attention", "a")
            picture.add_labelled_box(x + 5, y + 30, 70, 20, f"E{2 * die}, E{2 * die + 1}", GROUPS[1 + die % 3])
    rows, columns = preset("wafer64", "dies.rows"), preset("wafer64", "dies.cols")
    size, nodes = preset("h800_ep", "nodes.size"), preset("h800_ep", "dies.rows")
    picture.text(14, 276, "Tokens go from their copy of attention to their experts and back.", "small")
    picture.text(14, 293, f"wafer64: {rows} x {columns} dies of tiles on one wafer.", "small")
    picture.text(14, 310, f"h800_ep: {nodes} nodes of {size} GPUs on a network.", "small")
    return picture


def parallelism() -> Picture:
    """Four panels: what each of four devices holds."""
    picture = Picture(396, "Tensor, pipeline, expert and data parallelism drawn on four devices each")
    tp = ("TP: a part of every layer", "allreduce after each", [["1/4"] * 3 for _ in range(4)])
    pp = ("PP: some whole layers", "activations to the next", [[f"L{3 * i + k + 1}" for k in range(3)] for i in range(4)])
    ep = (
        "EP: some experts of each layer",
        "tokens there and back",
        [[f"E{3 * i + k + 1}" for k in range(3)] for i in range(4)],
    )
    dp = ("DP: a copy of the model", "nothing is exchanged", [["L1", "L2", "..."] for _ in range(4)])
    for panel, (title, exchange, held) in enumerate([tp, pp, ep, dp]):
        y = 14 + panel * 95
        picture.text(14, y + 14, title, "bold")
        picture.text(376, y + 14, exchange, "end small")
        for device in range(4):
            x = 14 + device * 94
            picture.box(x, y + 22, 80, 60)
            for k, words in enumerate(held[device]):
                look = GROUPS[k] if panel == 3 else GROUPS[device]
                picture.add_labelled_box(x + 5 + k * 24, y + 34, 22, 36, "", look)
                picture.text(x + 16 + k * 24, y + 56, words, "middle small" if len(words) < 3 else "middle tiny")
            if device < 3 and panel in (0, 2):
                picture.line((x + 81, y + 52), (x + 93, y + 52))
            elif device < 3 and panel == 1:
                picture.line((x + 80, y + 52), (x + 94, y + 52), tip=True)
    return picture


def walk() -> Picture:
    """The way of one design from settings to the report, with the loop of the search."""
    picture = Picture(560, "The walk of a design: from settings to a front and its report")
    steps = [
        ("settings", "overrides, presets, study.yaml", "", "b"),
        ("composed configuration", "checked: names, units, ranges", "dse/config", "b"),
        ("design", "one chip with one mapping", "space", "a"),
        ("operators, then calls", "the model, divided by the layout", "evaluators", "a"),
        ("cost of each call", "formulas, events or cycles", "evaluators", "a"),
        ("metrics and limits", "time, energy, area, price", "evaluators", "a"),
        ("store", "committed before the sampler is told", "dse/store", "c"),
        ("Pareto front", "what no other design beats", "dse/search", "c"),
        ("report", "why each winner wins", "dse/report", "d"),
    ]
    for i, (name, words, place, look) in enumerate(steps):
        y = 14 + i * 60
        picture.box(14, y, 300, 44, look)
        picture.text(24, y + 18, name, "bold")
        picture.text(304, y + 18, place, "end small")
        picture.text(24, y + 35, words, "small")
        if i < len(steps) - 1:
            picture.line((164, y + 44), (164, y + 59), tip=True)
    picture.line((314, 396), (352, 396), (352, 156), (316, 156), tip=True)
    for i, words in enumerate(["search", "asks", "for the", "next"]):
        picture.text(352, 250 + 15 * i, words, "middle small halo")
    return picture


def quickstart_front() -> pd.DataFrame:
    """Designs of a small quickstart study: `x` time per output token [ms], `y` token/s/mm2, `front`."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        dse.run("quickstart", *SMALL)
        frame = dse.load("quickstart").frame()
    frame = frame[frame["feasible"]]
    columns = {"x": frame["tpot"] * 1e3, "y": frame["throughput_per_system_mm2"], "front": frame["front"]}
    found = pd.DataFrame(columns)
    found["y"] *= 1e-6 if found["y"].max() > 1e3 else 1
    return found


def front_read() -> Picture:
    """The front of the quickstart study with its ends and its knee named."""
    designs = quickstart_front()
    front = designs[designs["front"]].sort_values("x")
    picture = Picture(372, "The quickstart front with a cheap end, a knee and a fast end")
    most_x, most_y = 20.0, 0.45

    def place(x: float, y: float) -> tuple[float, float]:
        return 48 + 326 * x / most_x, 306 - 276 * y / most_y

    for x in (0, 5, 10, 15, 20):
        picture.text(place(x, 0)[0], 324, f"{x}", "middle small")
    for y in (0, 0.1, 0.2, 0.3, 0.4):
        picture.text(42, place(0, y)[1] + 4, f"{y:.1f}", "end small")
    picture.line((48, 30), (48, 306), (374, 306))
    shown = designs[(designs["x"] < most_x) & ~designs["front"]]
    for x, y in shown.iloc[:: max(1, len(shown) // 500)][["x", "y"]].to_numpy():
        picture.dot(*place(x, y), 1.6, "dot")
    picture.line(*(place(x, y) for x, y in front[["x", "y"]].to_numpy()), look="front")
    reach = (front["x"] - front["x"].min()) / (front["x"].max() - front["x"].min())
    knee = front.loc[(front["y"] / front["y"].max() - reach).idxmax()]
    marked = [(front.iloc[-1], "cheap end", "end", -8, -24), (knee, "knee", "", 12, 5), (front.iloc[0], "fast end", "", 14, 5)]
    for design, name, look, right, down in marked:
        x, y = place(design["x"], design["y"])
        picture.dot(x, y, 5, "mark")
        picture.text(x + right, y + down, name, f"bold halo {look}")
        picture.text(x + right, y + down + 15, f"{design['x']:.1f} ms, {design['y']:.2f}", f"small halo {look}")
    picture.text(211, 344, "time per output token [ms]: left is faster", "middle small")
    picture.text(14, 20, "token/s per mm2 of silicon: up is cheaper", "small")
    picture.text(14, 363, "line: designs that no other beats; dots: others", "small")
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    draw.__name__: draw
    for draw in (
        machine_shared_cache,
        machine_tiles,
        machine_npu,
        machine_wafer,
        machine_many_dies,
        parallelism,
        walk,
        front_read,
    )
}
"""Functions that draw, by the name of their file in `docs/assets`."""

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        (ASSETS / f"{name}.svg").write_text(PICTURES[name]().svg())
