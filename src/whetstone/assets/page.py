"""The shell of every page: one file that loads nothing, in colours of light and dark."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib import resources
from string import Template


def asset(package: str, name: str) -> str:
    """The text of a file in the folder ``assets`` of a package."""
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
    linked: Sequence[str] = (),
) -> str:
    """The page as text. ``kind`` and ``title`` are plain text, the rest is HTML.

    A content security policy forbids it to load anything, and without a ``script`` of ours, which reads the
    JSON ``data``, to run anything. A page that a server of ours gives has ``linked`` scripts instead, by
    their paths there: these alone run, and ask that server alone.
    """
    runs = "; script-src 'unsafe-inline'" if script else ""
    end = (
        f'<div id="tip" hidden></div>\n<script type="application/json" id="data">{data}</script>\n'
        f"<script>\n{script}\n</script>\n"
    )
    if linked:
        paths = "".join(f'<script src="{html.escape(path)}"></script>\n' for path in linked)
        end = f'<div id="tip" hidden></div>\n{paths}'
    return Template(asset("whetstone", "page.html")).substitute(
        kind=html.escape(kind),
        title=html.escape(title),
        scripts="; script-src 'self'; connect-src 'self'" if linked else runs,
        css=asset("whetstone", "base.css") + css,
        headline=headline,
        main=main,
        footer=footer,
        end=end if script or linked else "",
    )
