"""Engines of a tile: systolic arrays, pipelined compute elements, vector lanes.

Cycle counts are in cycles of the tile's clock.

Every form takes numbers or arrays over designs.
"""

from typing import Any, NamedTuple

from dse.space.array_math import ceil_div, maximum, minimum, select_by_option
from dse.space.chip import DATAFLOWS, Chip, MatrixEngine, TileRange, VectorEngine
from dse.space.memoize import memoize_by_identity

ACCUMULATOR_BYTES = 4
"""Bytes of a partial sum."""


def systolic_cycles(stays: tuple[Any, Any], streams: Any, rows: Any, cols: Any, reload: str) -> Any:
    """Cycles of a product on a systolic array that keeps one operand while the other streams. [cycle]

    A tile is `rows` values of what stays loaded row by row, then `streams` vectors that enter skewed and drain: with tiles
    one after the other, each takes 2 rows + cols + streams - 2, one of all cycles being shared. Hidden, the next tile is loaded
    behind the one before: tiles x (streams + rows + cols - 2) + rows.

    Args:
        stays: sizes of what stays, along the array's rows and columns.
        streams: vectors that stream by.
        rows, cols: of the array; the last tiles are padded.
        reload: "tile" or "hidden".

    Source:
        [raj2025] by measurement for tiles one after the other; [zhu2025] section 3.1 for hidden loading: N_tiles x T_cycles +
        T_inject.

    >>> systolic_cycles((64, 64), 100, 32, 32, "tile"), systolic_cycles((64, 64), 100, 32, 32, "hidden")
    (775, 679)
    """
    tiles = ceil_div(stays[0], rows) * ceil_div(stays[1], cols)
    cycles = streams + rows + cols - 2
    return tiles * (cycles + rows) - 1 if reload == "tile" else tiles * cycles + rows - 1


def pipelined_element_cycles(m: Any, k: Any, n: Any, rows: Any, cols: Any, depth: Any, fill: Any) -> Any:
    """Cycles of a product on rows of pipelined multiply-add elements with `depth` registers. [cycle]

    A row of elements makes cols x (depth + 1) results of a row of the output, `cols` multiply-adds deep at a time:

        ceil(m / rows) ceil(n / w) (w ceil(k / cols) + fill),  w = cols (depth + 1)

    Source:
        [tortorella2023] the array's organisation; the form is fitted to [zhang2026]'s utilisation of slices of 128.

    >>> (
    ...     pipelined_element_cycles(128, 128, 128, 32, 16, 3, 10),
    ...     round(128**3 / (32 * 16) / pipelined_element_cycles(128, 128, 128, 32, 16, 3, 10), 3),
    ... )
    (4176, 0.981)
    """
    wide = cols * (depth + 1)
    return ceil_div(m, rows) * ceil_div(n, wide) * (wide * ceil_div(k, cols) + fill)


def least_systolic_cycles(stays: tuple[Any, Any], streams: Any, ends: tuple[Any, Any, Any, Any], reload: str) -> Any:
    """Least cycles of a product on systolic arrays of several sizes, as a lower bound. [cycle]

    It is the value of `systolic_cycles` where the sizes are one. With A = ceil(s0 / R) and B = ceil(s1 / C) at the largest
    array R x C, any array r x c has at least A B tiles. Rows of all tiles in a column are ceil(s0 / r) r >= max(s0, A r_least),
    columns likewise. The sum of tiles x (streams + rows + columns - 2) is bounded summand by summand, each of which is a
    product of such parts.

    Args:
        stays, streams, reload: as of `systolic_cycles`.
        ends: most and least rows, most and least columns of the array.

    >>> least_systolic_cycles((64, 64), 100, (32, 32, 32, 32), "tile"), systolic_cycles((64, 64), 100, 32, 32, "tile")
    (775, 775)
    >>> least_systolic_cycles((64, 64), 100, (64, 32, 64, 32), "tile"), systolic_cycles((64, 64), 100, 64, 64, "tile")
    (287, 289)
    """
    rows, least_rows, cols, least_cols = ends
    high, wide = ceil_div(stays[0], rows), ceil_div(stays[1], cols)
    all_rows = wide * maximum(high * (least_rows - 1), stays[0] - ceil_div(stays[0], least_rows))  # of ceil(s0 / r) (r - 1)
    all_cols = high * maximum(wide * (least_cols - 1), stays[1] - ceil_div(stays[1], least_cols))
    cycles = high * wide * streams + all_rows + all_cols
    if reload == "tile":
        return cycles + wide * maximum(high * least_rows, stays[0]) - 1
    return cycles + least_rows - 1


def least_element_cycles(m: Any, k: Any, n: Any, ends: tuple[Any, Any, Any, Any], depth: Any, fill: Any) -> Any:
    """Least cycles of a product on rows of pipelined elements of several sizes, as a lower bound. [cycle]

    It is the value of `pipelined_element_cycles` where the sizes are one. ceil(n / w) w is at least n, and ceil(n / W) of the
    least w; w ceil(k / c) is at least (depth + 1) k, and that of the least c with ceil(k / C). Both bounds of
    ceil(n / w) w ceil(k / c) hold, so their larger one does.

    Args:
        m, k, n, depth, fill: as of `pipelined_element_cycles`.
        ends: most and least rows, most and least columns of the array.

    >>> least_element_cycles(128, 128, 128, (32, 32, 16, 16), 3, 10), pipelined_element_cycles(128, 128, 128, 32, 16, 3, 10)
    (4176, 4176)
    >>> least_element_cycles(128, 128, 128, (32, 32, 24, 16), 3, 10), pipelined_element_cycles(128, 128, 128, 32, 24, 3, 10)
    (4176, 4688)
    """
    rows, _, cols, least_cols = ends
    wide, least_wide = cols * (depth + 1), least_cols * (depth + 1)
    across, deep = ceil_div(n, wide), ceil_div(k, cols)
    padded = maximum(maximum(n, across * least_wide) * deep, across * (depth + 1) * maximum(k, deep * least_cols))
    return ceil_div(m, rows) * (padded + across * fill)


class TileEngines(NamedTuple):
    """Engines of a tile, which share its local memory and run in parallel.

    Attributes:
        clock: [Hz]
        matrix, vector: as the chip has them.
        sram_bandwidth: between memory and engines. [B/cycle]
        products: an option of `PRODUCTS`.
        least: fewest rows and columns of the arrays of a box, of which times are lower bounds; None for one array.
    """

    clock: Any
    matrix: MatrixEngine
    vector: VectorEngine
    sram_bandwidth: Any
    products: str = "matrix"
    least: tuple[Any, Any] | None = None

    def product(self, m: Any, k: Any, n: Any, nbytes: float) -> Any:
        """Time of C[m, n] += A[m, k] B[k, n], without its start. [s]

        Args:
            m, k, n: sizes; B is what stays in a weight-stationary array, A in an input-stationary one.
            nbytes: of an operand's value.
        """
        busy = select_by_option(self.matrix.dataflow, DATAFLOWS, lambda stays: self._busy(stays, m, k, n))
        seconds = maximum(busy, self.streamed_bytes(m, k, n, nbytes) / self.sram_bandwidth) / self.clock
        if self.products == "matrix":
            return seconds
        # Lanes take each value of the larger operand once. Where they run products, a multiply-add is one operation, as of an
        # ALU: counted as two by twice as many, all else would take half the time, and NpuSim's rows come out no better (the
        # mean error of figure 12 goes from 1.0 to 1.1 %, of figure 14 from 11.5 to 11.6 %, of the others it stays).
        moved = nbytes * (m * k + k * n + m * n)
        return minimum(seconds, maximum(m * k * n / self.vector.lanes, moved / self.sram_bandwidth) / self.clock)

    def product_with_start(self, m: Any, k: Any, n: Any, nbytes: float) -> Any:
        """Time of a product, with its start. [s]"""
        return self.product(m, k, n, nbytes) + self.matrix.start / self.clock

    def streamed_bytes(self, m: Any, k: Any, n: Any, nbytes: float) -> Any:
        """Bytes between local memory and matrix array, with operands and sums that pass several times. [B]"""
        return select_by_option(self.matrix.dataflow, DATAFLOWS, lambda stays: self._streamed(stays, m, k, n, nbytes))

    def _busy(self, stays: str, m: Any, k: Any, n: Any) -> Any:
        """Cycles of a product, where operands come as fast as they are taken."""
        matrix = self.matrix
        sides, streams = {"ce": ((m, n), k), "weight": ((k, n), m), "output": ((m, n), k), "input": ((k, m), n)}[stays]
        if self.least is not None:
            ends = matrix.rows, self.least[0], matrix.cols, self.least[1]
            if stays == "ce":
                return least_element_cycles(m, k, n, ends, matrix.depth, matrix.fill)
            return least_systolic_cycles(sides, streams, ends, matrix.reload)
        if stays == "ce":
            return pipelined_element_cycles(m, k, n, matrix.rows, matrix.cols, matrix.depth, matrix.fill)
        return systolic_cycles(sides, streams, matrix.rows, matrix.cols, matrix.reload)

    def _streamed(self, stays: str, m: Any, k: Any, n: Any, nbytes: float) -> Any:
        matrix = self.matrix
        if stays in ("ce", "output"):
            wide = matrix.cols * (matrix.depth + 1 if stays == "ce" else 1)  # elements of a systolic array have a sum each
            return nbytes * (m * k * ceil_div(n, wide) + k * n * ceil_div(m, matrix.rows) + m * n)
        sums = m * n * (2 * ceil_div(k, matrix.rows) - 1) * ACCUMULATOR_BYTES
        if stays == "weight":
            return nbytes * (m * k * ceil_div(n, matrix.cols) + k * n) + sums
        return nbytes * (k * n * ceil_div(m, matrix.cols) + m * k) + sums

    def utilisation(self, m: Any, k: Any, n: Any, nbytes: float) -> Any:
        """Share of the array's multiply-adds that a product uses, without padding. [-]"""
        return m * k * n / (self.matrix.rows * self.matrix.cols * self.product(m, k, n, nbytes) * self.clock)

    def instruction(self, operations: Any, specials: Any, moved: Any) -> Any:
        """Time of a vector instruction, without its start. [s]

        Args:
            operations, specials: on all elements; a special one is an exponential, a root or a quotient.
            moved: bytes that it reads and writes.
        """
        busy = maximum(operations / self.vector.lanes, specials / self.vector.special)
        return maximum(busy, moved / self.sram_bandwidth) / self.clock

    def vectors(self, operations: Any, specials: Any, streamed: Any, starts: Any) -> Any:
        """Time of vector operations on elements in local memory; K and V go through the matrix engine. [s]"""
        return self.instruction(operations, specials, 0.0) + starts * (self.vector.start / self.clock)

    def call_seconds(self, matrix: Any, vector: Any) -> Any:
        """Time of both engines for one call, in sequence. [s]"""
        return matrix + vector

    def shares(self, matrix: Any, vector: Any) -> tuple[Any, Any]:
        """Time of each engine in a call: its own, since they run in sequence. [s], [s]"""
        return matrix, vector


@memoize_by_identity
def tile_engines(chip: Chip) -> TileEngines:
    """Engines of the tiles of a chip."""
    tile = chip.tile
    return TileEngines(
        chip.clock,
        tile.matrix,
        tile.vector,
        tile.sram_bandwidth + tile.sram_per_row * tile.matrix.rows,
        tile.gemm_engine,
        (tile.least_rows, tile.least_cols) if isinstance(tile, TileRange) else None,
    )
