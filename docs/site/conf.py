"""How Sphinx makes the guide of the repository's Markdown and notebooks (``make docs``; docs/decisions/0044-guide.md).

https://www.sphinx-doc.org/en/master/usage/configuration.html; links and anchors are read by https://myst-parser.readthedocs.io.
"""
# ruff: noqa: INP001  Sphinx runs this file; it is in no package.

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx

_PAGES = Path(__file__).parents[2] / "api" / "pages" / "static"

project = "Drumlin"
root_doc = "docs/index"
extensions = ["myst_parser"]
include_patterns = [
    "docs/**",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "deploy/**/README.md",
    "examples/**/README.md",
]
exclude_patterns = [
    *(
        ".*",
        "api",
        "build",
        "dist",
        "drumlin",
        "exporters",
        "kg",
        "ontology",
        "queries",
        "scripts",
    ),
    *("tests", "docs/site"),
]
myst_heading_anchors = 4  # as forges make them of headings
highlight_language = "none"  # of a block that names no language
html_theme = "guide"
html_theme_path = ["."]
html_static_path = [str(_PAGES / "style.css"), str(_PAGES / "icon.svg")]  # the guide looks like the pages
smartquotes = False  # texts stay as they are written
html_title = "Drumlin"
html_copy_source = False
html_use_index = False
html_permalinks_icon = "#"


class NotebookParser(MystParser):
    """A Jupyter notebook as a page (https://nbformat.readthedocs.io): its texts and its code, with a link to the file."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Read the cells as Markdown."""
        cells = [_markdown(cell) for cell in json.loads(inputstring)["cells"]]
        name = Path(document["source"]).name
        cells.insert(
            1,
            f"{{download}}`Download this notebook <{name}>`; it needs Jupyter and `drumlin[pandas]`, and asks the service of `make demo`.",
        )
        super().parse("\n\n".join(cells), document)


def _markdown(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    return text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"


def _scrollable(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: nodes.document | None
) -> None:
    """Have wide tables and drawings scroll by themselves, by keyboard too."""
    wrapped = context.get("body", "").replace("<table ", '<div class="scroll" tabindex="0"><table ')
    drawing = 'highlight-text notranslate"><div class="highlight"><pre'
    context["body"] = wrapped.replace("</table>", "</table></div>").replace(drawing, f'{drawing} tabindex="0"')


def setup(app: Sphinx) -> None:
    """Have notebooks read, and pages used by keyboard."""
    app.connect("html-page-context", _scrollable)
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
