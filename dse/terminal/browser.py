"""Pages in the user's browser."""

import webbrowser
from pathlib import Path

from rich.markup import escape

from dse.terminal.progress import say


def open_page(path: Path) -> None:
    """Open a page in the browser; where there is none, say where the page is."""
    try:
        opened = webbrowser.get().open(path.resolve().as_uri())
    except webbrowser.Error:
        opened = False
    if not opened:
        say(f"open    no browser here; the page is {escape(str(path.resolve()))}")
