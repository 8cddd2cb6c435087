"""What mkdocs asks while it builds the site: which files of the repository are pages, and where they stand in it.

Files keep their paths, so that README.md is the first page, and a link that works in the repository works in the site.
Reports of small studies are made by running them. Notebooks are pages of their text and code, from which they can be had.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PATTERNS = ("*.md", "CITATION.cff", "LICENSE", "docs/*.md", "docs/tutorials/*.md", "docs/reference/*.md")
PATTERNS += ("docs/architecture/*.md", "docs/guide/*.md", "docs/assets/*.svg")
PATTERNS += ("studies/*/README.md", "studies/*/*.svg", "studies/*/*.png")

INDEXES = ("docs/usage.md", "docs/studies.md", "docs/architecture.md")
GALLERY = "docs/gallery.md"
SMALL = {
    "quickstart": ("screen.limit=128", "search.budget=32"),
    "waferllm_gemv": ("workload.shapes=[1x2048x2048]", "verify.designs=2", "verify.off_front=2"),
}
"""Studies of the gallery, and what makes each short."""


def sources() -> Iterator[str]:
    """The files of the repository that the site has, as paths in it."""
    for pattern in PATTERNS:
        yield from sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Pages of the guide stand as its indexes list them; studies are pages as soon as they have a README.md."""
    studies = [path for path in sources() if path.startswith("studies/") and path.endswith(".md")]
    assert config.nav is not None
    config.nav.insert(2, {"Guide": ["docs/five_questions.md", *(part for index in INDEXES for part in sections(index))]})
    config.nav.append({"Studies": [{path.split("/")[1]: path} for path in studies]})
    return config


def sections(index: str) -> Iterator[dict[str, list[str]]]:
    """The pages that the table of each section of an index links, by the section's heading."""
    for section in re.split(r"^#+ ", (ROOT / index).read_text(), flags=re.MULTILINE):
        rows = "\n".join(line for line in section.splitlines() if line.startswith("| "))
        if pages := re.findall(r"\]\(((?:guide|architecture)/\w+\.md)\)", rows):
            yield {section.splitlines()[0]: list(dict.fromkeys(f"docs/{page}" for page in pages))}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The repository's files beside those of `docs/assets`."""
    for path in sources():
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        page = path.relative_to(ROOT).with_suffix(".md").as_posix()
        files.append(File.generated(config, page, content=pages_of(path)))
        files.append(File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls))
    for study, less in SMALL.items():
        files.append(File.generated(config, f"docs/reports/{study}.html", content=report(study, less)))
    return files


def pages_of(notebook: Path) -> str:
    """A notebook as a page: its text, its code, and where to have it."""
    cells = json.loads(notebook.read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    found_texts = [
        text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```" for cell, text in zip(cells, texts, strict=True)
    ]
    return (
        "\n\n".join([found_texts[0], f"[{notebook.name}]({notebook.name}) is this page as a notebook.", *found_texts[1:]])
        + "\n"
    )


def report(study: str, less: tuple[str, ...]) -> bytes:
    """The report of a study that is run for it, in a folder that is removed.

    Raises:
        CalledProcessError: it did not run; what it said is printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "dse.main", "run", f"study={study}", "workers=serial", *less]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path})
        return (Path(folder) / "runs" / study / "report.html").read_bytes()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The gallery's names of studies become links to their reports, which the repository does not have."""
    if page.file.src_uri != GALLERY:
        return markdown
    for study in SMALL:
        markdown = markdown.replace(f"\n| {study} |", f"\n| [{study}](reports/{study}.html) |")
    return markdown
