"""What mkdocs asks while it builds the site: which files of the repository are pages, and where they stand in it.

Files keep their paths, so that README.md is the first page, and a link that works in the repository works in the site.
"""

from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PATTERNS = ("*.md", "CITATION.cff", "LICENSE", "docs/*.md", "docs/tutorials/*.md", "studies/*/README.md", "studies/*/*.svg")
PATTERNS += ("studies/*/*.png",)


def sources() -> Iterator[str]:
    """The files of the repository that the site has, as paths in it."""
    for pattern in PATTERNS:
        yield from sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Studies are pages as soon as they have a README.md."""
    studies = [path for path in sources() if path.startswith("studies/") and path.endswith(".md")]
    assert config.nav is not None
    config.nav.append({"Studies": [{path.split("/")[1]: path} for path in studies]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The repository's files beside those of `docs/assets`."""
    for path in sources():
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    return files
