"""Common parts of all pages: packed data and bundles, style and code, and HTML from a template."""

import base64
import gzip
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.terminal.json_text import format_json

HERE = Path(__file__).parent

BUNDLES = HERE / "plotly_bundles"
"""Official partial bundles of plotly.js, compressed as they are, with their licence."""

LEVEL = 6
"""Of gzip: 9 takes four times as long for one percent."""


def embed_json(value: Any) -> str:
    r"""JSON that is safe inside a script element, whatever its strings contain.

    >>> embed_json({"note": "</script><b>"})
    '{"note":"\\u003c/script>\\u003cb>"}'
    """
    return format_json(value, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")


def pack_text(text: str) -> str:
    """Text as base64 of gzip, which `unpackText` of a page reads; the same text gives the same letters.

    >>> unpack_text(pack_text("</script>"))
    '</script>'
    """
    return base64.b64encode(gzip.compress(text.encode(), LEVEL, mtime=0)).decode()


def unpack_text(packed: str) -> str:
    """Text that `pack_text` packed."""
    return gzip.decompress(base64.b64decode(packed)).decode()


def pack_bundle(name: str) -> str:
    """A partial bundle of plotly.js as base64 of gzip.

    Args:
        name: ``basic`` for points, lines and bars in a plane, ``gl3d`` for points in space; empty string for none.
    """
    return base64.b64encode((BUNDLES / f"plotly-{name}.min.js.gz").read_bytes()).decode() if name else ""


def read_parts(names: Sequence[str]) -> str:
    """Text of several files of style or code of this folder, in order."""
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in names)


def fill_page(template: str, title: str, code: Sequence[str], data: Any, **parts: str) -> str:
    """One HTML file that needs nothing beside it.

    Args:
        template: name of the file with the body.
        title: of the page, as plain text.
        code: names of the files with its code, in order; `unpack.js` stands before them.
        data: JSON value that is packed into the page.
        parts: HTML by place of the template.
    """
    filled: Mapping[str, str] = {
        "title": html.escape(title),
        "head": (HERE / "page_head.html").read_text(encoding="utf-8"),
        "style": (HERE / "page.css").read_text(encoding="utf-8"),
        "code": read_parts(("unpack.js", *code)),
        "data": pack_text(embed_json(data)),
        **parts,
    }
    return _filled((HERE / template).read_text(encoding="utf-8"), filled)


def _filled(text: str, filled: Mapping[str, str]) -> str:
    """A template with its places filled; what is filled in is not searched again, but for the head."""
    head, *rest = text.split("{{")
    pieces = [head]
    for piece in rest:
        name, _, after = piece.partition("}}")
        pieces += [_filled(filled[name], filled) if name == "head" else filled[name], after]
    return "".join(pieces)


def read_page_data(page: Path) -> Any:
    """Data that a page carries, as JSON values."""
    import json

    packed = page.read_text(encoding="utf-8").partition('id="data">')[2].partition("</script>")[0]
    return json.loads(unpack_text(packed))
