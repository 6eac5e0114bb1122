"""Many wordings of the same wishes, put to the demo's own tools."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from project.demo.seed import ORDERS_INSTRUCTIONS
from tests.project.demo_talk import Conversation, Shop, called, offered

Calls = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, ORDERS_INSTRUCTIONS)


def status(*numbers: int) -> Calls:
    return [("order_status", {"order": number}) for number in numbers]


def search(query: str) -> Calls:
    return [("search_orders", {"query": query} if query else {})]


def refund(number: int, amount: float | None = None, **more: Any) -> Calls:
    paid = {} if amount is None else {"amount": amount}
    return [("refund_order", {"order": number, **paid, **more})]


def email(to: str, body: str, subject: str = "A message from us") -> Calls:
    return [("send_email", {"to": f"{to}@example.com", "subject": subject, "body": body})]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A state, with or without its words.
        ("1004", status(1004)),
        ("info 1003", status(1003)),
        ("Give me details of 1003", status(1003)),
        ("Where are orders 1001 and 1003?", status(1001, 1003)),
        ("Should I refund order 1003?", status(1003)),
        ("was 1003 paid back?", status(1003)),
        ("wehre is ordr 1002?", status(1002)),
        ("statsu of 1003", status(1003)),
        ("WHERE IS ORDER 1002", status(1002)),
        ("Wo ist Bestellung 1002?", status(1002)),
        # Searches and lists.
        ("Show me all orders", search("")),
        ("orders", search("")),
        ("How many orders do we have?", search("")),
        ("Zeige alle Bestellungen", search("")),
        ("how many orders are delivered?", search("delivered")),
        ("which orders are not delivered yet?", search("")),
        ("find orders for ada", search("ada")),
        ("What orders does Ada Marsh have?", search("Ada Marsh")),
        ("Welche Bestellungen hat Ada Marsh?", search("Ada Marsh")),
        ("Ada Marsh", search("Ada Marsh")),
        ("What is the email address of Keiko Tanaka?", search("Keiko Tanaka")),
        ("what did Farid Noor buy?", search("Farid Noor")),
        ('who ordered "The Quiet Gambit"?', search("The Quiet Gambit")),
        ("where is my book Night Trains?", search("Night Trains")),
        # Refunds, in full and in part.
        ("pls refnd oder 1003", refund(1003)),
        ("Bitte erstatte Bestellung 1003", refund(1003)),
        ("order 1007 arrived damaged, I want my money back", refund(1007)),
        ("Refund order 1009 because it never arrived", refund(1009, reason="it never arrived")),
        ("Refund 1001 and 1003, 5 EUR each", refund(1001, 5.0) + refund(1003, 5.0)),
        ("refund 5 EUR of 1001 and 7 EUR of 1003", refund(1001, 5.0) + refund(1003, 7.0)),
        ("refund order 1003 and 5 EUR of order 1004", refund(1003) + refund(1004, 5.0)),
        ("refund Greta's order", search("Greta") + refund(1008)),
        # Emails.
        ("Tell ada@example.com her parcel is late", email("ada", "Her parcel is late.")),
        (
            "Schreibe ada@example.com eine E-Mail, dass ihr Buch da ist",
            email("ada", "Ihr Buch da ist."),
        ),
        (
            "send an email to ada@example.com and bruno@example.com saying hi all",
            email("ada", "Hi all.") + email("bruno", "Hi all."),
        ),
        (
            "Email ada@example.com about order 1001",
            status(1001)
            + email(
                "ada",
                "Hello, order 1001 is delivered: customer Ada Marsh, item The Tide Tables, "
                "amount 24.50 EUR, placed on 7 Jan 2026.",
                "Your order 1001",
            ),
        ),
    ],
)
def test_other_words_for_the_same(shop: Shop, text: str, expected: Calls) -> None:
    answer = shop.say(text)
    assert shop.calls == expected
    assert "{" not in answer


@pytest.mark.parametrize(
    ("words", "amount"),
    [
        ("only 5 euros", 5.0),
        ("just five euros", 5.0),
        ("12,50 EUR", 12.5),
        ("EUR 12.50", 12.5),
        ("€5", 5.0),
        ("5€", 5.0),
        ("50 cents", 0.5),
        ("3 bucks", 3.0),
        ("1,200 EUR", 1200.0),
        ("1.200,50 €", 1200.5),
        ("100 EUR", 100.0),
        ("only 5", 5.0),
    ],
)
@pytest.mark.parametrize("form", ["refund order 1012, {}", "refund {} of 1012", "1012: refund {}"])
def test_money_is_the_amount_and_never_the_order(words: str, amount: float, form: str) -> None:
    asked = Conversation().ask(form.format(words))
    assert called(asked) == refund(1012, amount)


@pytest.mark.parametrize("words", ["5 euros", "1000 euros", "EUR 1003", "12,50 €", "only 5"])
def test_money_alone_names_no_order(words: str) -> None:
    asked = Conversation().ask(f"refund {words}")
    assert not asked.calls
    assert "order number" in asked.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("refund 7", refund(7)),
        ("track 7", status(7)),
        ("what is the status of 42?", status(42)),
        ("where is #5", status(5)),
        ("refund 5 euros of 7", refund(7, 5.0)),
    ],
)
def test_the_only_bare_number_is_the_one_whole_number_a_tool_needs(
    text: str, expected: Calls
) -> None:
    assert called(Conversation().ask(text)) == expected


@pytest.mark.parametrize("text", ["refund 7 or so, maybe 8", "refund 2 orders", "refund 10%"])
def test_other_small_numbers_are_no_order(text: str) -> None:
    assert not Conversation().ask(text).calls


def test_a_small_number_is_not_guessed_where_two_are_needed() -> None:
    tools = copy.deepcopy(offered()[1:2])
    schema = tools[0]["function"]["parameters"]
    schema["properties"]["line"] = {"type": "integer"}
    schema["required"] = ["order", "line"]
    assert not Conversation(tools=tools).ask("what is the status of 42?").calls


@pytest.mark.parametrize("name", ["message", "body", "text", "content", "email_text"])
@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        ('Email ada@example.com saying "It is late."', "It is late."),
        ("Email ada@example.com saying it is late", "It is late."),
        ("Email ada@example.com: it is late", "It is late."),
        ("Email ada@example.com that it is late", "It is late."),
        ("Send ada@example.com a message: it is late", "It is late."),
        ("message ada@example.com hello there, it is late", "Hello there, it is late."),
        ('write ada@example.com a note that "Charts" is late', '"Charts" is late.'),
        ("Could you email ada@example.com and tell her it is late?", "It is late."),
        ("mail ada@example.com, subject: Late, text: How are you?", "How are you?"),
        (
            'Email ada@example.com, subject "Delay", saying it is late. We are sorry.',
            "It is late. We are sorry.",
        ),
    ],
)
def test_the_text_of_an_email_is_the_persons_words(
    name: str, request_text: str, expected: str
) -> None:
    tools = copy.deepcopy(offered())
    schema = tools[-1]["function"]["parameters"]
    schema["properties"] = {
        "to": {"type": "string"},
        "subject": {"type": "string"},
        name: {"type": "string"},
    }
    schema["required"] = list(schema["properties"])
    ((_, arguments),) = called(Conversation(tools=tools).ask(request_text))
    assert (arguments["to"], arguments[name]) == ("ada@example.com", expected)


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (["I want a refund", "only 5 euros", "1012"], refund(1012, 5.0)),
        (["I want a refund", "never mind"], []),
        (["I want a refund", "Who are you?"], []),
        (["I want a refund", "where is order 1003?"], status(1003)),
        (["half of it back for order 1003, please refund", "17.25"], refund(1003, 17.25)),
        (["refund Ada Marsh's order", "the first one"], refund(1001)),
        (["refund Ada Marsh's order", "Winter Harbour"], refund(1005)),
        (["refund Ada Marsh's order", "both"], refund(1001) + refund(1005)),
        (["refund 1001 or 1003", "1003"], refund(1003)),
        (["find orders of Ada Marsh", "refund the Winter Harbour one"], refund(1005)),
        (["refund 1001 and 1003 and 5 EUR", "5 EUR"], refund(1001, 5.0) + refund(1003, 5.0)),
        (
            ["send an email", "ada@example.com", "Your parcel is here"],
            email("ada", "Your parcel is here."),
        ),
        (["email ada@example.com", "Where are you?"], email("ada", "Where are you?")),
        (["email ada@example.com", "never mind"], []),
        (["Where is order 1002?", "who bought it?"], status(1002)),
        (["Where is order 1002?", "and 1003?"], status(1003)),
        (["Where is order 1002?", "email him that it ships"], email("bruno", "It ships.")),
        (["refund order 1003", "thanks, where is it?"], status(1003)),
    ],
)
def test_a_conversation_goes_on(shop: Shop, turns: list[str], expected: Calls) -> None:
    for text in turns:
        shop.say(text)
    assert shop.calls == expected
