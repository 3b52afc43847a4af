"""Stands for the systems an order talks to: stock, payment, parcels. A file that all processes share.

Like a good provider it takes an idempotency key: a repeated call with the key of an earlier one changes nothing and
gives the earlier answer. ``ORDERS_PROVIDER`` names the file.
"""

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

MOST_CENTS = 100_000


class Declined(Exception):
    """The customer's bank said no."""


def reserve(sku: str, quantity: int, key: str) -> str:
    return _once("reservation", f"{quantity} x {sku}", key)


def release(reservation: str) -> None:
    _undo(reservation)


def charge(customer: str, cents: int, key: str) -> str:
    if cents > MOST_CENTS:
        raise Declined(f"{cents} cents are more than {customer} may spend")
    return _once("charge", f"{customer}: {cents}", key)


def refund(charged: str) -> None:
    _undo(charged)


def ship(customer: str, sku: str, key: str) -> str:
    return _once("parcel", f"{sku} to {customer}", key)


def _once(kind: str, what: str, key: str) -> str:
    with _database() as database:
        database.execute(
            "insert into effect values (?, ?, ?, ?, false) on conflict do nothing",
            (key, f"{kind}-{uuid.uuid4().hex[:8]}", kind, what),
        )
        (name,) = database.execute("select name from effect where key = ?", (key,)).fetchone()
        return str(name)


def _undo(name: str) -> None:
    with _database() as database:
        database.execute("update effect set undone = true where name = ?", (name,))


@contextmanager
def _database() -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(os.environ.get("ORDERS_PROVIDER", "provider.sqlite3"), timeout=10)
    try:
        with database:
            database.execute(
                "create table if not exists effect "
                "(key text primary key, name text, kind text, what text, undone boolean)"
            )
            yield database
    finally:
        database.close()
