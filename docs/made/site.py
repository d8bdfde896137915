"""Hooks of MkDocs that turn the pages into a site, as they lie: `mkdocs.yml` names this file.

The navigation is made of the tables of `docs/README.md`. Pages outside of `docs/` that others link to come along; links
to code become plain text. Each page carries a policy that names its own scripts by their hashes, so that wherever the
site lies, a browser runs and fetches nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import mkdocs_swagger_ui_tag
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # mkdocs loads this file by its path

from docs.made import reference

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ("SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/*/results/*.md")
"""Pages that lie outside of `docs/`."""
SWAGGER = Path(mkdocs_swagger_ui_tag.__file__).parent / "swagger-ui"
FIELDS = "reference.md"
"""Page with the fields of every route. It is part of the site alone: the API document holds the same."""
TRY_IT = {
    "try/index.html": ROOT / "docs/made/try.html",
    "try/start.js": ROOT / "docs/made/try.js",
    "try/swagger-ui.js": SWAGGER / "javascripts/swagger-ui-bundle.js",
    "try/swagger-ui.css": SWAGGER / "stylesheets/swagger-ui.css",
    "try/LICENSE": SWAGGER / "LICENSE",
}
"""Files of the page where one tries routes, which is no Markdown."""

POLICY = (
    "default-src 'none'; script-src 'self' {scripts}; style-src 'self' {styles}; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
)

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_ROW_LINK = re.compile(r"\[([^\]]+)\]\(([\w./-]+\.md)\)")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
_SOURCE = re.compile(r'\b(src|srcset)="([^"]+)"')
_CODE = re.compile(r"^```.*?^```$|(?<!\[)`[^`\n]+`", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"<(script|style)(?![^>]*\b(?:src=|type=\"application/json\"))[^>]*>(.*?)</\1>", re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Makes the navigation of the tables of the first page: a section for each heading, each page once."""
    _, *parts = _HEADING.split((ROOT / "docs/README.md").read_text("utf-8"))
    seen: set[str] = set()
    config.nav = [{"Overview": "README.md"}]
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        pages = []
        for title, target in _ROW_LINK.findall(text):
            page = posixpath.normpath(target.removeprefix("../"))
            if page not in seen:
                seen.add(page)
                pages.append({title[0].upper() + title[1:]: page})
        config.nav.append({heading: pages})
    config.nav[-2]["Reference"][:0] = [{"Try it": "try/index.html"}, {"Fields": FIELDS}]
    # The API has an answer of its own for what is not there.
    config.theme.static_templates.discard("404.html")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from outside of `docs/`, the fields of every route, and the page where one tries routes."""
    files.append(File.generated(config, FIELDS, content=reference.page()))
    for pattern in BESIDE:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    for uri, path in TRY_IT.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links at the pages of the site; what it does not hold, such as code, is named without a link."""
    path = page.file.src_uri
    source = path if (ROOT / path).is_file() and not (ROOT / "docs" / path).is_file() else f"docs/{path}"

    def place(target: str) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(source), target)).removeprefix("docs/")

    def address(there: str) -> str:
        return posixpath.relpath(there, posixpath.dirname(path) or ".")

    def on_site(link: re.Match[str]) -> str:
        picture, text, target, fragment = link.groups(default="")
        there = place(target)
        file = files.get_file_from_path(there)
        is_root_readme = there == "README.md" and target != "README.md"
        if file is None or file.inclusion is InclusionLevel.EXCLUDED or is_root_readme:
            return text
        return f"{picture}[{text}]({address(there)}{fragment})"

    def shown(picture: re.Match[str]) -> str:
        return f'{picture[1]}="{address(place(picture[2]))}"'

    return "".join(
        part if is_code else _SOURCE.sub(shown, _LINK.sub(on_site, part)) for is_code, part in _apart(markdown)
    )


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Puts the policy of the page before all that it loads."""
    charset = '<meta charset="utf-8">'
    assert charset in output, "the theme's pages begin otherwise"
    return output.replace(
        charset, f'{charset}<meta http-equiv="Content-Security-Policy" content="{policy(output)}">', 1
    )


def policy(html: str) -> str:
    """The content security policy of a page: what it loads from its own site, and its inline parts by their hashes."""
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in _INLINE.findall(html):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
    return POLICY.format(**{f"{kind}s": " ".join(dict.fromkeys(each)) for kind, each in hashes.items()})


def _apart(markdown: str) -> Iterator[tuple[bool, str]]:
    """Code and text in turn. Brackets in code are no links."""
    end = 0
    for code in _CODE.finditer(markdown):
        yield False, markdown[end : code.start()]
        yield True, code[0]
        end = code.end()
    yield False, markdown[end:]
