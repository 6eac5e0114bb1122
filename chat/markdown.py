"""Markdown of a model as HTML that is safe to show.

Two walls: the parser passes no raw HTML on, and the sanitiser knows a short list of elements.
Nothing that loads from elsewhere is ever produced: an image becomes its description.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr",
    "li", "ol", "p", "pre", "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {"a": {"href", "title"}, "code": {"class"}, "ol": {"start"}}
SCHEMES = {"http", "https", "mailto"}
#: Characters that are rendered; what is longer stays plain text.
MAX_LENGTH = 200_000


class _Renderer(RendererHTML):
    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """The description instead of the picture: showing it would tell its server who reads."""
        token = tokens[idx]
        text = self.renderInlineAsText(token.children or [], options, env)
        escaped: str = nh3.clean_text(text)
        return escaped

    # Alignment would come as a style attribute, which the content security policy refuses.


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt(
        "commonmark", {"html": False, "linkify": False}, renderer_cls=_Renderer
    ).enable(["table", "strikethrough"])


def to_html(text: str) -> str:
    """Sanitised HTML of *text*; empty when it is too long to render."""
    if len(text) > MAX_LENGTH:
        return ""
    rendered: Any = _parser().render(text)
    cleaned: str = nh3.clean(
        rendered,
        tags=TAGS,
        attributes=ATTRIBUTES,
        url_schemes=SCHEMES,
        link_rel="noopener noreferrer nofollow",
        attribute_filter=_only_languages,
    )
    return cleaned


def _only_languages(tag: str, attribute: str, value: str) -> str | None:
    """Of classes, only the one that names a code block's language."""
    if (tag, attribute) != ("code", "class"):
        return value
    return value if value.startswith("language-") and " " not in value else None
