"""What a visitor of the demo reads: sentences and tables, never the JSON behind them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from project.demo.rules.rendering import ROWS
from project.demo.seed import CATALOG_INSTRUCTIONS, ORDERS_INSTRUCTIONS
from tests.project.demo_talk import Conversation, Shop, offered

BRIEF = "You are a shop. Be brief."


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, ORDERS_INSTRUCTIONS)


def cells(answer: str) -> list[list[str]]:
    """The rows of the table in an answer, its head first."""
    lines = [line for line in answer.splitlines() if line.startswith("|")]
    assert set(lines[1]) <= set("| -")
    return [
        [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[:1] + lines[2:]
    ]


def test_many_results_are_a_table(shop: Shop) -> None:
    answer = shop.say("find the orders of Ada Marsh")

    assert answer.startswith("I found 2 orders.\n\n|")
    assert cells(answer) == [
        ["Order", "Customer", "Item", "Amount", "State", "Placed on"],
        ["1001", "Ada Marsh", "The Tide Tables", "24.50 EUR", "delivered", "7 Jan 2026"],
        ["1005", "Ada Marsh", "Winter Harbour", "17.20 EUR", "shipped", "13 Jan 2026"],
    ]


def test_one_result_is_a_sentence(shop: Shop) -> None:
    expected = (
        "Order 1002 is shipped: customer Bruno Keller, item A Walk to the Pier, "
        "amount 18.90 EUR, placed on 9 Jan 2026."
    )
    assert shop.say("Where is order 1002?").startswith(expected)
    assert shop.say("orders of Bruno").startswith(f"I found one order. {expected}")


def test_no_result_says_what_was_searched(shop: Shop) -> None:
    assert shop.say("orders of Zoe Smith").startswith("I found nothing for “Zoe Smith”.")


@pytest.mark.parametrize("joined", [True, False])
def test_a_long_list_ends_with_how_many_more(joined: bool) -> None:
    items = [{"order": number, "state": "paid"} for number in range(1, ROWS + 4)]
    result = "\n".join(map(json.dumps, items)) if joined else json.dumps({"result": items})
    talk = Conversation(BRIEF)
    talk.ask("list all orders")

    answer = talk.result(result).text

    assert len(cells(answer)) == ROWS + 1
    assert answer.endswith("\n\n… and 3 more.")


def test_cells_cannot_break_the_table_and_wide_rows_lose_their_last_columns() -> None:
    row = {f"part_{letter}": f"{letter}|{letter}\n{letter}" for letter in "abcdefghi"}
    talk = Conversation(BRIEF)
    talk.ask("list all orders")

    head, *rows = cells(talk.result([row, row]).text)

    assert head == [f"Part {letter}" for letter in "abcdef"]
    assert rows == [[f"{letter}\\|{letter} {letter}" for letter in "abcdef"]] * 2


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("When was order 1003 placed?", "placed on 9 Jan 2026"),
        ("How much did order 1003 cost?", "amount 34.50 EUR"),
        ("Has order 1003 been refunded?", "refunded 0.00 EUR"),
        ("What is the email of the customer of order 1003?", "email chloe@example.com"),
    ],
)
def test_what_was_asked_for_comes_first(shop: Shop, question: str, first: str) -> None:
    answer = shop.say(question)
    assert first in answer
    assert answer.index(first) < answer.index("item Salt and Thyme")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"posted": True}, "Posted yes."),
        ({"parcel": 5, "state": "sorted", "left": 0}, "Parcel 5 is sorted."),
        (
            {"order": 5, "sent_at": "2026-02-03T04:05:06+00:00"},
            "Order 5: sent at 3 Feb 2026, 04:05 UTC.",
        ),
        ({"order_id": 5, "total": 1234, "currency": "USD"}, "Order 5: total 1,234.00 USD."),
        ({}, "It says nothing more."),
    ],
)
def test_one_thing_of_any_shape_is_a_sentence(value: dict[str, Any], expected: str) -> None:
    talk = Conversation(BRIEF)
    talk.ask("Where is order 5000?")
    assert talk.result(json.dumps(value)).text == expected


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("The outcome of this call is unknown: the run ended.", "do not know"),
        ("The tool call ended without a result: x. It may have happened; check.", "do not know"),
        ("It was not carried out: the approval expired.", "was not carried out: the approval"),
        ("The person denied this call.", "did not allow"),
        ("Cancelled by the user.", "was cancelled"),
        ("The tool call failed: tool_unreachable.", "did not work"),
        ("Error executing tool refund_order: There is no order 1003.", "did not work: There is no"),
    ],
)
def test_what_did_not_happen_is_never_called_done(result: str, words: str) -> None:
    talk = Conversation(BRIEF)
    talk.ask("refund order 1003")
    answer = talk.result(result)
    assert words in answer.text
    assert "Done" not in answer.text
    assert not answer.calls


def test_a_sent_email_is_shown(shop: Shop) -> None:
    answer = shop.say('Email ada@example.com with the subject "Late" saying "We are sorry!"')
    assert "addressed to ada@example.com, subject “Late”:\n\n> We are sorry!" in answer
    assert [(m.to, m.subject, m.body) for m in shop.book.outbox()] == [
        ("ada@example.com", "Late", "We are sorry!")
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hi", "Hello! I am Mandate's demo model"),
        ("Good morning!", "Hello!"),
        ("Guten Tag", "few words of German"),
        ("Who are you?", "order desk of Harbour Books"),
        ("are you a robot?", "Mandate's demo model"),
        ("what model are you?", "Mandate's demo model"),
        ("Was kannst du?", "**refund order**"),
        ("???", "**search orders**"),
        ("How are you?", "Always the same"),
        ("Thanks!", "You are welcome."),
        ("Vielen Dank", "You are welcome."),
        ("thx", "You are welcome."),
        ("ok", "Tell me what to do next."),
        ("bye", "Goodbye!"),
        ("never mind", "I leave it."),
        ("Don't refund order 1003", "I leave it."),
        ("do not email anyone", "I leave it."),
        ("What's the weather in Paris?", "no rule for “What's the weather in Paris?”"),
        ("tell me a joke", "no rule for"),
        ("write a poem about the sea", "no rule for"),
        ("asdfghjkl", "no rule for"),
        ("What is 2+2?", "no rule for"),
        ("cancel order 1006", "no tool to cancel"),
        ("Storniere Bestellung 1006", "no tool to cancel"),
        ("delete order 1001", "no tool to delete"),
        ("I want a refund", "I still need the order number."),
        ("where's my parcel?", "I still need the order number."),
        ("What's up with my order?", "I still need the order number."),
        ("refund 3 orders", "I still need the order number."),
        ("email bruno@example.com", "I still need what it should say."),
        ("I'd like half of it back for order 1003", "the amount as a figure"),
        ("give me 10% back on 1006", "the amount as a figure"),
        ("refund -5 EUR of order 1012", "the amount as a figure"),
    ],
)
def test_what_needs_no_tool_is_answered_in_words(shop: Shop, text: str, words: str) -> None:
    assert words in shop.say(text)
    assert shop.calls == []


def test_an_agent_without_the_tool_points_where_its_instructions_do() -> None:
    reads = [t for t in offered() if t["function"]["name"].endswith(("search_orders", "status"))]
    answer = Conversation(CATALOG_INSTRUCTIONS, reads).ask("Please refund order 1002")
    assert "no tool to refund" in answer.text
    assert "“For refunds, point people to the order desk.”" in answer.text
    assert not answer.calls


@pytest.mark.parametrize("text", ["hello", "who are you", "sing me a song", "bye"])
def test_an_answer_that_offers_help_does_not_offer_it_twice(shop: Shop, text: str) -> None:
    assert "anything else" not in shop.say(text)
