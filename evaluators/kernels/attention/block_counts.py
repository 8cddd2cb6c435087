"""Compiled counts of key blocks over all waves, for choosing among thousands of tilings."""

# mypy: disable-error-code="no-untyped-def"

from dse.evaluators.machine.compile_cache import compiled_loop


@compiled_loop
def count_key_blocks(problems, shared, queries, keys, causal, window, rows, cols, m, n, splits, mesh_rows, mesh_cols, out):
    """Count key blocks of all waves, how often one is masked, and those that groups load. [-]

    Args:
        problems, shared, queries, keys, causal, window: as in `attention_shape.AttentionShape`.
        rows, cols, m, n, splits: as in `attention_shape.AttentionTiling`.
        mesh_rows, mesh_cols: sides of the mesh.
        out: the three counts, shape (3,).
    """
    groups = (mesh_rows // rows) * (mesh_cols // cols)
    span, width, lines = rows * m, cols * n, queries * shared
    outer, inner = -(-lines // span), -(-keys // width)  # as `attention_shape.block_counts` has it
    if window > 0:
        positions = 1
        if shared % span:
            positions = span // shared if span % shared == 0 else (span + shared - 2) // shared + 1
        inner = min(inner, -(-(window + positions - 1) // width))
    parts = 1
    if splits != 1:
        inner, every = -(-inner // splits), inner
        parts = -(-every // inner)
    items, alike, reach = problems * outer * parts, problems * parts, window if window > 0 else keys
    blocks = masked = loads = 0
    for first in range(0, items, groups):
        active = min(groups, items - first)
        start, end = first // alike, (first + active - 1) // alike
        least, most, low = keys, keys, 0
        if causal:
            least, most, low = 1 << 62, -(1 << 62), -(1 << 62)
            for block in range(start, end + 1):  # as `block_schedule.causal_band` has it
                seen = keys - queries + 1 + block * span // shared
                last = keys - queries + 1 + min((block + 1) * span - 1, lines - 1) // shared
                begin = max(seen - reach, 0)
                least = min(least, max(seen - begin, 0))
                most = max(most, last - begin)
                low = max(low, max(last - reach, 0) - begin)
        if parts > 1:
            before = first // problems % parts if start == end else 0
            after = (first + active - 1) // problems % parts if start == end else parts - 1
            most = max(min(max(most - before * inner * width, 0), inner * width), 1)
            low = min(max(low - before * inner * width, 0), inner * width)
            least = min(max(least - after * inner * width, 0), inner * width)
        plain, whole, passed = max(least, 0) // width, -(-most // width), -(-low // width)
        blocks += whole
        masked += whole - plain + passed
        loads += whole * active
    out[0], out[1], out[2] = blocks, masked, loads


@compiled_loop
def count_many(keys, out):
    """Count key blocks of many tilings, as `count_key_blocks` does for one, and write them to `out`.

    Args:
        keys: its arguments but the last, shape (rows, 13).
        out: the counts, shape (rows, 3).
    """
    for row in range(len(keys)):
        entry = keys[row]
        count_key_blocks(
            entry[0],
            entry[1],
            entry[2],
            entry[3],
            entry[4],
            entry[5],
            entry[6],
            entry[7],
            entry[8],
            entry[9],
            entry[10],
            entry[11],
            entry[12],
            out[row],
        )
