"""Who asks for something, and the tokens that they may make: none that can do more than they."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, and_, select

from daskscope_service.accounts import tokens
from daskscope_service.accounts.tokens import GRANTS, Scope
from daskscope_service.db.engine import writing
from daskscope_service.db.schema import member
from daskscope_service.db.schema import user as user_table


class NotGranted(Exception):
    """A token would be allowed more than who makes it. ``allowed``: the most that it may have."""

    def __init__(self, allowed: tuple[Scope, ...]) -> None:
        super().__init__(f"no more than: {', '.join(allowed) or 'nothing'}")
        self.allowed = allowed


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, in ``workspace`` and from ``address``.

    ``name`` is theirs, for people and the audit log. ``user`` is the id of the user, or of the one
    whose token it is; None for who came with a link or with a token that is no user's.
    ``by_token``: they showed a token, now or when they signed in.
    """

    name: str
    workspace: str
    role: str
    user: str | None
    by_token: bool
    address: str

    @property
    def grants(self) -> tuple[Scope, ...]:
        """The scopes that tokens may have which they make."""
        # A token that makes others would live on in them when it is revoked. Scope admin of an
        # owner is there to do so.
        if self.by_token and self.role != "owner":
            return ()
        return GRANTS[self.role]

    def owns(self, token: tokens.Token) -> bool:
        """Tell whether they may revoke ``token``."""
        return self.role == "owner" or (self.user is not None and token.user == self.user)


def make_token(
    engine: Engine,
    caller: Caller,
    *,
    label: str,
    scopes: Iterable[Scope],
    expires_at: float | None,
) -> str:
    """Make a token of the caller's workspace and return it as text.

    Raises
    ------
    NotGranted
        It would be allowed more than the caller.
    """
    with writing(engine) as connection:
        allowed = caller.grants
        if caller.user is not None:
            now = granted(connection, caller.user, caller.workspace)
            allowed = tuple(scope for scope in allowed if scope in now)
        scopes = tuple(scopes)
        if not set(scopes) <= set(allowed):
            raise NotGranted(allowed)
        return tokens.add(
            connection,
            workspace=caller.workspace,
            label=label,
            scopes=scopes,
            expires_at=expires_at,
            made_by=caller.name,
            user=caller.user,
            address=caller.address,
        )


def granted(connection: Connection, user: str, workspace: str) -> tuple[Scope, ...]:
    """Return the scopes that the user of this id may give away in ``workspace``.

    Until the transaction ends, neither the role nor the user changes: a token that is made
    meanwhile is there to be revoked when they do.
    """
    role = connection.execute(
        select(member.c.role)
        .join(
            user_table, and_(user_table.c.id == member.c.user, user_table.c.disabled_at.is_(None))
        )
        .where(member.c.workspace == workspace, member.c.user == user)
        .with_for_update()
    ).scalar()
    return () if role is None else GRANTS[role]
