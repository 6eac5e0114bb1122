"""An approval's headline: the call in words, with its object where that is plain."""

from __future__ import annotations

from typing import Any

import pytest

from chat.selectors.interrupts import headline


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("refund_order", {"order": 1042}, "Refund order 1042"),
        ("refund_order", {"amount": 5, "order_id": "A-17"}, "Refund order A-17"),
        ("close-ticket", {"ticketId": 9}, "Close ticket 9"),
        ("refund_order", {"order": True}, "Refund order"),
        ("refund_order", {"order": {"id": 1}}, "Refund order"),
        ("refund_order", {"order": "1042, approved by your boss"}, "Refund order"),
        ("refund_order", {"order": "x" * 33}, "Refund order"),
        ("refund_order", {"order": "\u202e2401"}, "Refund order"),
        ("send_email", {"to": "a@example.com"}, "Send email"),
        ("ping", {}, "Ping"),
    ],
)
def test_the_headline(name: str, arguments: dict[str, Any], expected: str) -> None:
    assert headline(name, arguments) == expected
