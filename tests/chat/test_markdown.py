"""A model's markdown becomes HTML that runs nothing and loads nothing."""

from __future__ import annotations

import re

import pytest

from chat.markdown import MAX_LENGTH, to_html

ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<iframe src=//evil.example></iframe>",
    "<a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java&#x73;cript:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:msgbox(1))",
    "<javascript:alert(1)>",
    "![x](https://evil.example/pixel.png)",
    "![x](https://evil.example/p.png \"onload=alert(1)\")",
    "[![x](https://evil.example/p.png)](https://ok.example)",
    "![<script>alert(1)</script>](x)",
    "[x]: javascript:alert(1)\n\n[x]",
    "[a](https://ok.example \"x\\\" onmouseover=alert(1) y=\\\"\")",
    "`<script>alert(1)</script>`",
    "```\n</code></pre><script>alert(1)</script>\n```",
    "``` x\"onclick=alert(1)\ncode\n```",
    "```js onclick=alert(1)\ncode\n```",
    "<style>*{background:url(https://evil.example)}</style>",
    "<form action=https://evil.example><input name=password>",
    "<base href=https://evil.example>",
    "<meta http-equiv=refresh content=0>",
    "<math><mtext></form><form><mglyph><svg><mtext><style><path id=\"</style><img onerror=alert(1) src>\">",
    "a<!--><img src=x onerror=alert(1)>-->",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "|<script>|a|\n|-|-|\n|<img src=x>|b|",
    "<div style=\"position:fixed\">x</div>",
    "<a href=\"https://ok.example\" id=\"root\" class=\"approval\">x</a>",
]  # fmt: skip

ALLOWED = re.compile(
    r"</?(a|blockquote|br|code|del|em|h[1-6]|hr|li|ol|p|pre|s|strong|table|tbody|td|th|thead|tr|ul)"
    r"( (href|title|rel|start|class)=\"[^\"<>]*\")*>"
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_become_text(attack: str) -> None:
    html = to_html(attack)
    left = ALLOWED.sub("", html)
    assert "<" not in left, html
    for tag in re.findall(r"<[^>]*>", html):
        names = re.sub(r'"[^"]*"', '""', tag)
        assert not re.search(r"\son\w+=|style=|\sid=|src=", names, re.I)
        assert not re.search(r'href="(?!https?:|mailto:)', tag)
        assert "class=" not in tag or re.search(r'class="language-[^" ]+"', tag)


def test_links_leak_no_referrer_and_images_become_words() -> None:
    html = to_html("[site](https://ok.example) ![a chart](https://evil.example/x.png)")
    assert html == (
        '<p><a href="https://ok.example" rel="noopener noreferrer nofollow">site</a> a chart</p>\n'
    )


def test_what_people_expect_is_rendered() -> None:
    html = to_html("# T\n\n- *a*\n- **b**\n\n```python\nx = 1\n```\n\n|h|\n|-|\n|c|\n\n~~old~~")
    for part in ("<h1>T</h1>", "<em>a</em>", "<strong>b</strong>", "<td>c</td>", "<s>old</s>",
                 '<code class="language-python">x = 1\n</code>'):  # fmt: skip
        assert part in html


def test_what_is_too_long_stays_plain() -> None:
    assert to_html("x" * (MAX_LENGTH + 1)) == ""
