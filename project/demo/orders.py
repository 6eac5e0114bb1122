"""The demo's order book: one SQLite file that the demo tools read and change.

Amounts are whole cents in the file and plain decimals outside. All data is made up.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, Field

CURRENCY: Final = "EUR"
SEARCH_LIMIT: Final = 20

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY,
    customer TEXT NOT NULL,
    email TEXT NOT NULL,
    item TEXT NOT NULL,
    cents INTEGER NOT NULL CHECK (cents > 0),
    refunded_cents INTEGER NOT NULL DEFAULT 0 CHECK (refunded_cents BETWEEN 0 AND cents),
    state TEXT NOT NULL,
    placed_on TEXT NOT NULL,
    note TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sent_at TEXT NOT NULL,
    recipient TEXT NOT NULL,
    subject TEXT NOT NULL,
    body TEXT NOT NULL
);
"""

_ORDERS: Final = [
    (1001, "Ada Marsh", "ada@example.com", "The Tide Tables", 2_450, "delivered", "2026-01-07"),
    (
        1002,
        "Bruno Keller",
        "bruno@example.com",
        "A Walk to the Pier",
        1_890,
        "shipped",
        "2026-01-09",
    ),
    (1003, "Chloe Okafor", "chloe@example.com", "Salt and Thyme", 3_450, "delivered", "2026-01-09"),
    (1004, "Dmitri Vance", "dmitri@example.com", "Collected Charts", 8_900, "packed", "2026-01-12"),
    (1005, "Ada Marsh", "ada@example.com", "Winter Harbour", 1_720, "shipped", "2026-01-13"),
    (1006, "Elif Aydin", "elif@example.com", "The Quiet Gambit", 2_600, "paid", "2026-01-14"),
    (1007, "Farid Noor", "farid@example.com", "Two Wheels North", 2_450, "delivered", "2026-01-15"),
    (1008, "Greta Lindqvist", "greta@example.com", "Rain, a History", 2_990, "paid", "2026-01-16"),
    (1009, "Hugo Martin", "hugo@example.com", "Slow Mornings", 1_680, "cancelled", "2026-01-17"),
    (1010, "Ines Duarte", "ines@example.com", "The Walled Garden", 3_830, "shipped", "2026-01-19"),
    (1011, "Jonas Weber", "jonas@example.com", "Night Trains", 1_950, "packed", "2026-01-20"),
    (1012, "Keiko Tanaka", "keiko@example.com", "Pencil and Ink", 1_250, "delivered", "2026-01-21"),
]


class Order(BaseModel):
    """One order as the tools show it."""

    order: int = Field(description="The order number.")
    customer: str
    email: str
    item: str = Field(description="The title of the book.")
    amount: float = Field(description="What was paid.")
    refunded: float = Field(description="What was paid back so far.")
    currency: str = CURRENCY
    state: str
    placed_on: str


class Mail(BaseModel):
    """One row of the outbox; nothing leaves the machine."""

    id: int
    sent_at: str
    to: str
    subject: str
    body: str


class OrderProblem(Exception):
    """The order book refuses; the text is for the model and the person."""


class OrderBook:
    """Every method opens the file anew: the tools run in threads, and tests look in from outside."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._transaction() as db:
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            if not db.execute("SELECT 1 FROM orders").fetchone():
                db.executemany(
                    "INSERT INTO orders (id, customer, email, item, cents, state, placed_on)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    _ORDERS,
                )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.path, timeout=10, isolation_level=None)
        try:
            db.row_factory = sqlite3.Row
            db.execute("BEGIN IMMEDIATE")
            with db:
                yield db
        finally:
            db.close()

    def orders(self) -> list[Order]:
        with self._transaction() as db:
            return [_order(row) for row in db.execute("SELECT * FROM orders ORDER BY id")]

    def outbox(self) -> list[Mail]:
        with self._transaction() as db:
            rows = db.execute("SELECT * FROM outbox ORDER BY id").fetchall()
        return [Mail(**{**dict(row), "to": row["recipient"]}) for row in rows]

    def search(self, query: str) -> list[Order]:
        """Orders where every word of *query* occurs in the number, customer, item or state."""
        words = query.casefold().split()
        found = [
            order
            for order in self.orders()
            if all(
                word
                in f"{order.order} {order.customer} {order.email} {order.item} {order.state}".casefold()
                for word in words
            )
        ]
        return found[:SEARCH_LIMIT]

    def get(self, number: int) -> Order:
        """Raise OrderProblem when there is no such order."""
        with self._transaction() as db:
            return _order(_row(db, number))

    def refund(self, number: int, amount: float | None, reason: str) -> Order:
        """Pay back *amount*, or all that is left. Refuses more than what is left."""
        with self._transaction() as db:
            row = _row(db, number)
            left = row["cents"] - row["refunded_cents"]
            cents = left if amount is None else round(amount * 100)
            if left == 0:
                raise OrderProblem(f"Order {number} is already refunded in full.")
            if cents <= 0:
                raise OrderProblem("The amount must be more than zero.")
            if cents > left:
                raise OrderProblem(
                    f"Only {_money(left)} of order {number} can still be refunded, "
                    f"not {_money(cents)}."
                )
            state = "refunded" if cents == left else "partly refunded"
            db.execute(
                "UPDATE orders SET refunded_cents = refunded_cents + ?, state = ?, note = ?"
                " WHERE id = ?",
                (cents, state, reason, number),
            )
            return _order(_row(db, number))

    def send(self, to: str, subject: str, body: str) -> Mail:
        with self._transaction() as db:
            added = db.execute(
                "INSERT INTO outbox (sent_at, recipient, subject, body) VALUES (?, ?, ?, ?)",
                (datetime.now(UTC).isoformat(timespec="seconds"), to, subject, body),
            )
            row = db.execute("SELECT * FROM outbox WHERE id = ?", (added.lastrowid,)).fetchone()
        return Mail(**{**dict(row), "to": row["recipient"]})


def _row(db: sqlite3.Connection, number: int) -> Any:
    row = db.execute("SELECT * FROM orders WHERE id = ?", (number,)).fetchone()
    if row is None:
        raise OrderProblem(f"There is no order {number}.")
    return row


def _order(row: Any) -> Order:
    return Order(
        order=row["id"],
        customer=row["customer"],
        email=row["email"],
        item=row["item"],
        amount=row["cents"] / 100,
        refunded=row["refunded_cents"] / 100,
        state=row["state"],
        placed_on=row["placed_on"],
    )


def _money(cents: int) -> str:
    return f"{cents / 100:.2f} {CURRENCY}"
