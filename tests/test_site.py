"""The site of the documents: it builds without a warning, and nothing is fetched from elsewhere when it is read."""

import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import dse
from tests.dse.test_report_page import browser

__all__ = ["browser"]

ROOT = Path(__file__).resolve().parent.parent
FETCHED = {"stylesheet", "preload", "prefetch", "modulepreload", "preconnect", "dns-prefetch", "icon", "manifest"}
"""Links of a page's head that a browser follows by itself."""
OUTSIDE = re.compile(r"^\s*(?:https?:)?//", re.IGNORECASE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as the documents say, elsewhere."""
    site = tmp_path_factory.mktemp("site") / "site"
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", "docs/mkdocs.yml", "--site-dir", str(site)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr
    return site


class Assets(HTMLParser):
    """What a browser fetches of others to show a page, as `found`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "link" and not FETCHED & set(attributes.get("rel", "").lower().split()):
            return
        names = ("src", "srcset", "poster", "data", "href") if tag in ("link", "use", "image") else ("src", "srcset", "data")
        self.found += [attributes[name] for name in names if OUTSIDE.match(attributes.get(name, ""))]
        self.found += imported(attributes.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self.lasttag == "style":
            self.found += imported(data)


def imported(style: str) -> list[str]:
    """What a sheet of styles fetches of others."""
    result = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", style)
    return [first_group or other for first_group, other in result if OUTSIDE.match(first_group or other)]


def outside(page: str) -> list[str]:
    """What a page fetches of others."""
    assets = Assets()
    assets.feed(page)
    return assets.found


@pytest.mark.slow
def test_no_page_fetches_anything_of_others(site: Path) -> None:
    pages = {path: outside(path.read_text()) for path in site.rglob("*.html")}
    styles = {path: imported(path.read_text()) for path in site.rglob("*.css")}
    assert len(pages) > 50
    assert styles
    assert not {str(path): page for path, page in (pages | styles).items() if page}


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://a.example/x.js"></script>',
        '<link rel="stylesheet" href="//a.example/x.css">',
        '<link rel="preconnect" href="https://a.example">',
        '<style>@import "https://a.example/x.css";</style>',
        '<p style="background: url(https://a.example/x.png)">',
        '<img src="http://a.example/x.png">',
    ],
)
def test_what_is_fetched_of_others_is_found(page: str) -> None:
    assert outside(page)
    assert not outside(re.sub(r"(https?:)?//a\.example/?", "", page))


@pytest.mark.slow
def test_a_browser_asks_nobody_else(browser: Any, site: Path) -> None:
    """Scripts of the site included: with a repo_url, those of the theme ask GitHub for its stars."""
    page, requests = browser.new_page(), []
    page.on("request", lambda request: requests.append(request.url) if OUTSIDE.match(request.url) else None)
    page.goto((site / "index.html").as_uri())
    page.wait_for_selector('link[href^="assets/stylesheets"]', state="attached")
    page.wait_for_timeout(1000)
    page.close()
    assert requests == []


def test_no_script_of_the_theme_has_a_repository_to_ask_for() -> None:
    """What the browser would see where slow tests run."""
    assert not re.findall(r"^repo_url:", (ROOT / "docs/mkdocs.yml").read_text(), re.MULTILINE)


@pytest.mark.slow
def test_every_document_and_study_is_a_page(site: Path) -> None:
    """Each page is a folder of the site at the path that the document has in the repository."""
    documents = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("studies/*/README.md"), ROOT / "README.md"]
    for path in documents:
        place = path.relative_to(ROOT)
        page = site / (place.parent if place.name == "README.md" else place.with_suffix("")) / "index.html"
        assert page.exists(), place


@pytest.mark.slow
@pytest.mark.parametrize(("document", "least"), [("api", 150), ("physics", 100)])
def test_every_public_name_of_what_a_page_names_is_on_it(document: str, least: int, site: Path) -> None:
    """Each public class, method and function of the modules that a reference names."""
    page = (site / "docs" / document / "index.html").read_text()
    named = re.findall(r"^::: ([\w.]+)$", (ROOT / f"docs/{document}.md").read_text(), re.MULTILINE)
    wanted = {name for place in named for name in public(place)}
    assert len(wanted) > least
    assert not {name for name in wanted if f'id="{name}"' not in page}


@pytest.mark.parametrize("document", ["api", "physics"])
def test_every_name_of_a_reference_is_there(document: str) -> None:
    """What the site would be made of; it is built where slow tests run."""
    named = re.findall(r"^::: ([\w.]+)$", (ROOT / f"docs/{document}.md").read_text(), re.MULTILINE)
    assert all(public(place) for place in named)


@pytest.mark.slow
def test_what_dse_itself_gives_is_in_the_reference(site: Path) -> None:
    page = (site / "docs/api/index.html").read_text()
    given = [getattr(dse, name) for name in dse.__all__]
    assert not [
        member_object for member_object in given if f'id="{member_object.__module__}.{member_object.__qualname__}"' not in page
    ]


def public(place: str) -> set[str]:
    """The addresses of a module's or a class's public classes, methods and functions, those that it imports left out."""
    holder, _, last = place.rpartition(".")
    names = {place}
    try:
        module = import_module(place)
    except ModuleNotFoundError:
        module = getattr(import_module(holder), last)
        assert module.__name__ == last
    for name, member in vars(module).items():
        if name.startswith("_") or not (inspect.isfunction(member) or inspect.isclass(member)):
            continue
        if member.__doc__ and member.__module__ == (module.__name__ if inspect.ismodule(module) else module.__module__):
            names |= public_of(f"{place}.{name}", member)
    return names


def public_of(place: str, member: Any) -> set[str]:
    """A class with its public methods that have a docstring, or a function."""
    methods = vars(member).items() if inspect.isclass(member) else ()
    return {place} | {
        f"{place}.{name}" for name, method in methods if name[0] != "_" and inspect.isfunction(method) and method.__doc__
    }


@pytest.mark.slow
def test_the_gallery_links_to_a_report_of_each_study(site: Path) -> None:
    linked = re.findall(r'href="([^"]*reports/(\w+)\.html)"', (site / "docs/gallery/index.html").read_text())
    assert len(linked) >= 2
    for address, study in linked:
        text = (site / "docs/gallery" / address).read_text()
        assert study in text
        assert "Plotly" in text
