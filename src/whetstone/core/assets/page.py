"""The HTML frame of every page: a single file that loads nothing, with light and dark colours."""

from __future__ import annotations

import html
from importlib import resources
from string import Template


def asset(package: str, name: str) -> str:
    """Return the text of a file in the folder ``assets`` of a package."""
    return (resources.files(package) / "assets" / name).read_text(encoding="utf-8")


def page(
    *,
    kind: str,
    title: str,
    headline: str,
    main: str,
    footer: str,
    css: str,
    data: str = "",
    script: str = "",
    served_script: str = "",
) -> str:
    """Return the page as text.

    kind, title: plain text. The other arguments are HTML, CSS, JSON and JavaScript.
    data: JSON that the script reads, safe inside a script element.
    script: the script that the page contains.
    served_script: the path of a script on the server of the page, in place of ``script``.

    A content security policy forbids the page to load anything. A page with a served script may load this
    script, and request data from its server.
    """
    sources = "; script-src 'unsafe-inline'" if script else ""
    end = f"<script>\n{script}\n</script>\n"
    if served_script:
        sources = "; script-src 'self'; connect-src 'self'"
        end = f'<script src="{html.escape(served_script)}"></script>\n'
    end = f'<script type="application/json" id="data">{data}</script>\n{end}'
    return Template(asset("whetstone.core", "page.html")).substitute(
        kind=html.escape(kind),
        title=html.escape(title),
        scripts=sources,
        css=asset("whetstone.core", "base.css") + css,
        headline=headline,
        main=main,
        footer=footer,
        end=end if script or served_script else "",
    )
