"""MkDocs hooks: version and repository in the header, pages from outside ``docs/``, generated pages, and the
links between them."""

from __future__ import annotations

import os
from pathlib import Path

from links import linked_files, rewritten, site_path
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from recipe_keys import recipe_page

from whetstone import __version__

ROOT = Path(__file__).parents[2]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the version beside the name of the site, and the repository if its address is known."""
    config.site_name = f"{config.site_name} {__version__}"
    if address := repository_address():
        config.repo_url, config.repo_name = address, address.partition("://")[2].partition("/")[2]
    return config


def repository_address() -> str | None:
    """Return the address that WHETSTONE_REPOSITORY gives, or that of the workflow's repository on GitHub."""
    server, name = (os.environ.get(f"GITHUB_{part}") for part in ("SERVER_URL", "REPOSITORY"))
    return os.environ.get("WHETSTONE_REPOSITORY") or (f"{server}/{name}" if server and name else None)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the benchmark pages, every file that a page links to, and the page of recipe keys."""
    files.append(File.generated(config, "reference/recipe.md", content=recipe_page()))
    waiting = [f"docs/{page.src_uri}" for page in files.documentation_pages() if page.generated_by is None]
    waiting += [str(page.relative_to(ROOT)) for page in sorted((ROOT / "benchmarks").glob("*.md"))]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if files.get_file_from_path(site_path(path)) is None:
            _add(path, files, config)
        if path.endswith(".md") and (ROOT / path).is_file():
            found = set(linked_files(path, (ROOT / path).read_text(encoding="utf-8"))) - seen
            waiting += sorted(found)
            seen |= found
    return files


def _add(path: str, files: Files, config: MkDocsConfig) -> None:
    if not (ROOT / path).is_file():
        raise PluginError(f"{path}: a page links to it, and it is no file of the repository")
    if not path.startswith("docs/"):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page to places in the site."""
    if page.file.abs_src_path is None:
        return markdown
    return rewritten(str(Path(page.file.abs_src_path).relative_to(ROOT)), markdown)
