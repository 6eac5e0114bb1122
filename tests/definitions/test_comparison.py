"""Two texts compared word by word."""

from hypothesis import given
from hypothesis import strategies as st

from definitions.comparison import CONTEXT, Part, compare


def test_it_tells_nothing_about_equal_texts() -> None:
    assert compare("same\ntext", "same\ntext") == []


def test_it_marks_the_changed_word_only() -> None:
    assert compare("Refund the order.", "Refund the invoice.") == [
        Part("same", "Refund the "),
        Part("removed", "order"),
        Part("added", "invoice"),
        Part("same", "."),
    ]


def test_it_shortens_long_unchanged_text_beside_a_change() -> None:
    before = "line\n" * 400
    parts = compare(before, before + "new")
    assert parts[-1] == Part("added", "new")
    assert len(parts[0].text) < CONTEXT
    assert "…" in parts[0].text


def test_it_shows_large_rewritten_passages_whole() -> None:
    before, after = "a b " * 2_000, "c d " * 2_000
    assert compare(before, after) == [Part("removed", before), Part("added", after)]


@given(st.text(max_size=CONTEXT // 4), st.text(max_size=CONTEXT // 4))
def test_its_parts_hold_both_texts(before: str, after: str) -> None:
    parts = compare(before, after)
    if before == after:
        assert parts == []
        return
    assert "".join(p.text for p in parts if p.kind != "added") == before
    assert "".join(p.text for p in parts if p.kind != "removed") == after
