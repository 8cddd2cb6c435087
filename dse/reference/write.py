"""Writer of the pages of the reference, `docs/reference` and `docs/settings.md`.

python -m dse.reference.write      # writes them in a checkout
"""

from pathlib import Path

from dse.reference.pages import COMMAND, reference_pages

DOCS = Path(__file__).resolve().parents[2] / "docs"


def find_stale_pages(docs: Path = DOCS) -> list[str]:
    """Pages that are missing, say something else than the records and presets, or have none any more; a line each."""
    pages = reference_pages()
    stale = [name for name, text in pages.items() if not (docs / name).is_file() or (docs / name).read_text() != text]
    stale += [
        f"reference/{path.name}" for path in sorted((docs / "reference").glob("*.md")) if f"reference/{path.name}" not in pages
    ]
    return [f"docs/{name}: not as the records and presets have it; {COMMAND}" for name in stale]


def write_pages(docs: Path = DOCS) -> None:
    """Write all pages, and remove those that are none any more."""
    pages = reference_pages()
    (docs / "reference").mkdir(exist_ok=True)
    for path in (docs / "reference").glob("*.md"):
        if f"reference/{path.name}" not in pages:
            path.unlink()
    for name, text in pages.items():
        (docs / name).write_text(text)


if __name__ == "__main__":
    write_pages()
