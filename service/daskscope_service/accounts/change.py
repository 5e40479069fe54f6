"""A change in a workspace: who makes it, from where, and its entry in the audit log."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from daskscope_service.accounts import audit


@dataclass(frozen=True, slots=True)
class Change:
    """A transaction in which ``actor`` changes something in ``workspace``.

    ``address`` is the client's, None for a change that did not come over the network.
    """

    connection: Connection
    workspace: str
    actor: str
    address: str | None = None

    @property
    def stamp(self) -> dict[str, Any]:
        """The columns that say when a row was changed, and by whom."""
        return {"changed_at": time.time(), "changed_by": self.actor}

    def log(self, action: audit.Action, detail: str) -> None:
        """Add an entry to the audit log, in the same transaction."""
        audit.write(
            self.connection,
            action,
            actor=self.actor,
            detail=detail,
            workspace=self.workspace,
            address=self.address,
        )
