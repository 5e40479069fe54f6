"""The user or token behind a request, and the tokens that it may create: with no more rights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta
from sqlalchemy import Connection, Engine, and_, select

from daskscope_service.accounts import tokens
from daskscope_service.accounts.tokens import GRANTS, LONGEST_LABEL, Scope
from daskscope_service.db.engine import writing
from daskscope_service.db.schema import member
from daskscope_service.db.schema import user as user_table
from daskscope_service.web.fields import Missing, check

#: The bounds of a new token's label and scopes.
Label = Annotated[str, Meta(max_length=LONGEST_LABEL, pattern=r"^[^\x00]*$")]
Scopes = Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=3)]


class NotGranted(Exception):
    """A token would have more rights than its creator. ``allowed``: the scopes it may have."""

    def __init__(self, allowed: tuple[Scope, ...]) -> None:
        super().__init__(f"no more than: {', '.join(allowed) or 'nothing'}")
        self.allowed = allowed


class NotOwn(Exception):
    """The token belongs to someone else. The message says who may revoke it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The user or token behind a request in ``workspace``, from ``address``.

    ``name`` is shown to people and in the audit log. ``user`` is the id of the user, or of the
    token's user; None for a sign-in with a link and for a token without a user. ``by_token``: the
    caller used a token, in this request or to sign in.
    """

    name: str
    workspace: str
    role: str
    user: str | None
    by_token: bool
    address: str

    @property
    def grants(self) -> tuple[Scope, ...]:
        """The scopes that this caller may give to new tokens."""
        # Otherwise a revoked token would live on in the tokens that it created. An owner's token of
        # scope admin is meant to create others.
        if self.by_token and self.role != "owner":
            return ()
        return GRANTS[self.role]

    def owns(self, token: tokens.Token) -> bool:
        """Return whether this caller may revoke ``token``."""
        return self.role == "owner" or (self.user is not None and token.user == self.user)


def make_token(
    engine: Engine,
    caller: Caller,
    *,
    label: str,
    scopes: Iterable[Scope],
    expires_at: float | None,
) -> str:
    """Create a token in the caller's workspace and return its text.

    Raises
    ------
    NotGranted
        It would have more rights than the caller.
    Unfit
        Its label is too long, or it has no scope.
    """
    scopes = tuple(scopes)
    check(Label, label, "label", f"A label has at most {LONGEST_LABEL} characters.")
    check(Scopes, scopes, "scopes", "A token needs a scope: choose what it may do.")
    with writing(engine) as connection:
        allowed = caller.grants
        if caller.user is not None:
            now = granted(connection, caller.user, caller.workspace)
            allowed = tuple(scope for scope in allowed if scope in now)
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


def revoke_token(engine: Engine, caller: Caller, token_id: str) -> None:
    """Revoke a token of the caller's workspace: owners may revoke any, others only their own.

    Raises
    ------
    Missing, NotOwn
        There is no such token, or it belongs to someone else.
    """
    token = tokens.one_in(engine, caller.workspace, token_id)
    if token is None:
        raise Missing("token", token_id)
    if not caller.owns(token):
        raise NotOwn(f"Token {token_id} is not yours; an owner of the workspace may revoke it.")
    tokens.revoke(engine, caller.workspace, token_id, actor=caller.name, address=caller.address)


def granted(connection: Connection, user: str, workspace: str) -> tuple[Scope, ...]:
    """Return the scopes that the user with this id may give to tokens in ``workspace``.

    This locks the user and the role until the transaction ends. A change of either waits, and then
    finds the token that this transaction creates, and revokes it.
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
