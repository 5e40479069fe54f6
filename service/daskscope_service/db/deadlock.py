"""Work that may be done anew where PostgreSQL ends it, so that another transaction can go on.

Two transactions that wait for each other's rows would wait for ever, so one of them is ended. Who
removes rows while others write them meets that, and does it anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from daskscope_service.db.engine import writing

T = TypeVar("T")

_DEADLOCK = "40P01"

#: How often it is tried. Each time, another transaction went on.
_TIMES = 5


def writing_again(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Do ``work`` in a transaction that writes, and anew where it was ended by a deadlock.

    It must do nothing but what the transaction takes back.
    """
    left = _TIMES
    while True:
        left -= 1
        try:
            with writing(engine) as connection:
                return work(connection)
        except DBAPIError as error:
            if left == 0 or getattr(error.orig, "sqlstate", None) != _DEADLOCK:
                raise
