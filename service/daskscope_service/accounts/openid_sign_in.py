"""Sign-in by OpenID Connect: finds or creates the user for the person whom the provider names.

The database keeps the state of a sign-in until the browser comes back, so that any process can
finish it. A person is identified by the provider's address and the provider's subject for them: a
name or an e-mail address can pass to someone else.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sqlalchemy import Connection, Engine, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from daskscope.one_line import one_line
from daskscope_service.accounts import audit, members, sessions, users
from daskscope_service.accounts.login_rate_limit import TooManyAttempts, network
from daskscope_service.accounts.openid_answer import LEEWAY, OpenIDError, Person
from daskscope_service.accounts.secret import hash_of, new_secret
from daskscope_service.accounts.users import ROLES, Role
from daskscope_service.db.engine import take_turns, writing
from daskscope_service.db.schema import identity, openid_attempt, user
from daskscope_service.settings import Settings

if TYPE_CHECKING:
    from daskscope_service.accounts.openid import Provider

#: Seconds within which the browser must come back, and how many sign-ins from one address may be
#: pending.
SECONDS = 15 * 60.0
FROM_ADDRESS = 30


#: The actor in the audit log for changes that follow from the provider's answer.
_ACTOR = "OpenID Connect"


class NotLetIn(Exception):
    """The provider knows the person, but the service refuses them. The message says what to do."""


@dataclass(frozen=True, slots=True)
class BegunSignIn:
    """``url``: the provider's page. ``ticket``: the cookie that identifies the browser later."""

    url: str
    ticket: str


@dataclass(frozen=True, slots=True)
class Returned:
    """The session that began, and where the browser wanted to go."""

    session_id: str
    target: str


def begin(
    engine: Engine,
    provider: Provider,
    *,
    target: str,
    address: str,
    user_id: str | None = None,
    again: bool = False,
) -> BegunSignIn:
    """Store a pending sign-in of a browser at ``address``; return the provider's page for it.

    The browser goes to ``target`` afterwards. With ``user_id``, that signed-in user connects their
    account with the provider's. ``again``: ask the provider to check the user's identity even if
    they are signed in there. :func:`finish` requires the provider to confirm it, because the
    browser can drop the request.

    Raises
    ------
    OpenIDError
        The provider does not answer.
    TooManyAttempts
        Too many sign-ins from this address are pending.
    """
    state, nonce, verifier, ticket = (new_secret() for _ in range(4))
    now = time.time()
    with writing(engine) as connection:
        take_turns(connection, f"sign-ins from {network(address)}")
        connection.execute(delete(openid_attempt).where(openid_attempt.c.expires_at <= now))
        away, first = connection.execute(
            select(func.count(), func.min(openid_attempt.c.expires_at)).where(
                openid_attempt.c.address == network(address)
            )
        ).one()
        if away >= FROM_ADDRESS:
            raise TooManyAttempts(first)
        connection.execute(
            insert(openid_attempt).values(
                state_hash=hash_of(state),
                ticket_hash=hash_of(ticket),
                nonce=nonce,
                verifier=verifier,
                target=target,
                user=user_id,
                address=network(address),
                expires_at=now + SECONDS,
                again=again,
            )
        )
    try:
        # The provider may be slow, so it is asked only after the address has got a place.
        url = provider.address(state=state, nonce=nonce, verifier=verifier, again=again)
    except OpenIDError:
        with writing(engine) as connection:  # the provider's failure does not count
            connection.execute(
                delete(openid_attempt).where(openid_attempt.c.state_hash == hash_of(state))
            )
        raise
    return BegunSignIn(url, ticket)


def finish(
    engine: Engine,
    provider: Provider,
    settings: Settings,
    *,
    state: str,
    ticket: str,
    code: str,
    user_id: str | None,
    address: str,
    agent: str = "",
) -> Returned:
    """Start a session for the person that the provider names. ``user_id`` is signed in here now.

    Raises
    ------
    OpenIDError
        This browser did not start the sign-in, or has finished it before, or the provider's
        answer is not valid.
    NotLetIn
        The person has no account and gets none; or the user is disabled or in no workspace; or
        the sign-in needs a new proof of identity, and the provider does not confirm one.
    """
    with writing(engine) as connection:  # a state works once, whatever follows
        attempt = connection.execute(
            delete(openid_attempt)
            .where(
                openid_attempt.c.state_hash == hash_of(state),
                openid_attempt.c.ticket_hash == hash_of(ticket),
                openid_attempt.c.expires_at > time.time(),
            )
            .returning(*openid_attempt.c)
        ).first()
    if attempt is None:
        raise OpenIDError("this sign-in was not started in this browser, or has expired")
    if attempt.user not in (None, user_id):
        raise OpenIDError(
            "the user who wanted to connect their account has signed out in the meantime"
        )
    try:
        person = provider.redeem(code, nonce=attempt.nonce, verifier=attempt.verifier)
    except OpenIDError as error:
        audit.refused(engine, _ACTOR, str(error), address)
        raise
    is_invited = members.find(engine, members.code_in(attempt.target)) is not None
    try:
        # Two transactions: a change of the role is stored even if the sign-in is then refused.
        with writing(engine) as connection:
            user_id = _user_of(
                connection, provider, settings, person, attempt.user, is_invited, address
            )
        proven = _has_proved(person, since=attempt.expires_at - SECONDS)
        if attempt.again and not proven:
            raise NotLetIn(
                "The provider did not confirm that you have just proved your identity there "
                "(auth_time), so you are signed in as before. Sign in with a password if you have "
                "one, or ask the operator of the service."
            )
        with writing(engine) as connection:
            session_id = _start(connection, user_id, attempt.target, address, agent, proven=proven)
    except IntegrityError:  # the same person at the same moment, in another window
        raise OpenIDError("two sign-ins at the same moment; try again") from None
    except NotLetIn as error:
        audit.refused(engine, person.email or person.subject, f"OpenID Connect: {error}", address)
        raise
    return Returned(session_id, attempt.target)


def is_connected(engine: Engine, issuer: str, user_id: str) -> bool:
    """Return whether the user with this id can sign in by the provider at ``issuer``."""
    statement = select(identity.c.user).where(
        identity.c.issuer == issuer, identity.c.user == user_id
    )
    with engine.connect() as connection:
        return connection.execute(statement).first() is not None


def _user_of(
    connection: Connection,
    provider: Provider,
    settings: Settings,
    person: Person,
    connecting: str | None,
    is_invited: bool,
    address: str,
) -> str:
    """Return the id of the person's user; create or connect the account if necessary."""
    _check_domain(settings, person)
    known = connection.execute(
        select(identity.c.user).where(
            identity.c.issuer == provider.issuer, identity.c.subject == person.subject
        )
    ).scalar()
    if connecting is not None:
        if known not in (None, connecting):
            raise NotLetIn(
                "This account of the provider is already connected with another account here."
            )
        if known is None:
            _connect(connection, provider, person, connecting, address)
        known = connecting
    role = _role(settings, person)
    is_new = known is None
    if known is None:
        if role is None and not is_invited:
            raise NotLetIn("You have no account here yet. Ask an owner to invite you.")
        known = _make_user(connection, provider, person, address)
    if is_new or settings.oidc_roles:  # else the provider sets no roles
        users.give_role(
            connection, known, settings.oidc_workspace, role, actor=_ACTOR, address=address
        )
    return str(known)


def _start(
    connection: Connection, user_id: str, target: str, address: str, agent: str, *, proven: bool
) -> str:
    row = connection.execute(
        select(user.c.name, user.c.disabled_at).where(user.c.id == user_id).with_for_update()
    ).first()
    if row is None or row.disabled_at is not None:
        raise NotLetIn("Your account here is disabled.")
    workspace = connection.execute(users.workspaces_query(user_id)).scalar()
    workspace = workspace or members.join(
        connection, members.code_in(target), user_id=user_id, name=row.name, address=address
    )
    if workspace is None:
        raise NotLetIn("You are in no workspace. Ask an owner of one to invite you.")
    audit.write(
        connection,
        "signed in",
        actor=row.name,
        detail="by OpenID Connect",
        workspace=workspace,
        address=address,
    )
    return sessions.start(connection, workspace=workspace, user=user_id, agent=agent, proven=proven)


def _has_proved(person: Person, *, since: float) -> bool:
    """Return whether the provider says that ``person`` proved their identity after ``since``.

    A time that is yet to come, such as one in milliseconds, says nothing.
    """
    at = person.proved_at
    return at is not None and since - LEEWAY <= at <= time.time() + LEEWAY


def _check_domain(settings: Settings, person: Person) -> None:
    # Not casefold(): for it, straße.example is strasse.example, which may be someone else's.
    allowed = {domain.lower() for domain in settings.oidc_domains}
    if not allowed:
        return
    if person.email is None or not person.email_verified:
        raise NotLetIn("The provider has not verified your e-mail address.")
    if person.email.rpartition("@")[2].lower() not in allowed:
        raise NotLetIn("E-mail addresses of your domain are not allowed here.")


def _role(settings: Settings, person: Person) -> Role | None:
    """Return the role that the settings give to ``person``; None for none."""
    if not settings.oidc_roles:
        return next((role for role in ROLES if role == settings.oidc_role), None)
    claimed = person.claims.get(settings.oidc_claim)
    # Of other types, the text is Python's own: "None" for a claim that is missing.
    values = {
        str(value)
        for value in (claimed if isinstance(claimed, list) else [claimed])
        if isinstance(value, str) or type(value) is int
    }
    given = dict(rule.rpartition("=")[::2] for rule in settings.oidc_roles)
    roles = {given[value] for value in values if value in given}
    return next((role for role in ROLES if role in roles), None)  # the first is the highest


def _make_user(connection: Connection, provider: Provider, person: Person, address: str) -> str:
    name = _free_name(connection, provider, person)
    try:
        user_id = users.add(
            connection,
            name=name,
            password_hash="",
            display_name=one_line(person.name or "")[:200] or name,
            actor=_ACTOR,
            address=address,
        ).id
    except users.UnfitName as error:
        raise NotLetIn(f"The provider's name for you cannot be used here: {error}.") from None
    _connect(connection, provider, person, user_id, address)
    return user_id


def _free_name(connection: Connection, provider: Provider, person: Person) -> str:
    """Return a name for the new user ``person``. Only a verified e-mail address may become one."""
    base = person.subject[:100]
    if person.email is not None and person.email_verified:
        taken = users.by_name(connection, person.email, user.c.made_in)
        if taken is None:
            return person.email
        if taken.made_in is None:
            raise NotLetIn(
                f"There is already a user {person.email}. If that is you, sign in with your "
                "password, and connect the two on the page Account."
            )
        base = person.email
    # Whoever invites chooses names. An account that someone made by an invitation, without proof
    # that its name is theirs, must not keep the person out whose name it is.
    host = urlsplit(provider.issuer).hostname
    name = f"{base} ({host})"
    if users.by_name(connection, name, user.c.id) is None:
        return name
    return f"{base} ({host}, {secrets.token_hex(4)})"


def _connect(
    connection: Connection, provider: Provider, person: Person, user_id: str, address: str
) -> None:
    connection.execute(
        insert(identity).values(
            issuer=provider.issuer,
            subject=person.subject,
            user=user_id,
            created_at=time.time(),
        )
    )
    name = connection.execute(select(user.c.name).where(user.c.id == user_id)).scalar()
    audit.write(
        connection,
        "account connected",
        actor=str(name),
        detail=f"{person.subject[:200]} of {provider.issuer}",
        address=address,
    )
