"""Decides which client may install or replace the plugin in a scheduler, and answers the client.

The first client whose settings contain a destination installs the plugin, and its settings stay in
force. Another client replaces it only to correct a mistake: see :func:`_replaces`. The opt-outs of
later clients always apply.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, fields
from typing import Any, TypedDict

from distributed.scheduler import Scheduler

from daskscope.config import CLIENTS_OWN, Settings, by_name, of_client
from daskscope.containment import contain
from daskscope.errors import ConfigurationError
from daskscope.observe.cluster.environment import read_once
from daskscope.observe.cluster.opt_outs import refused_by
from daskscope.observe.cluster.users import Registrant
from daskscope.plugin import NAME, Plugin
from daskscope.timer import until
from daskscope.version import __version__

#: Settings of the destination. If they are wrong, no service accepts heartbeats.
_ADDRESSEE = ("endpoint", "token", "workspace", "otlp_only")

#: Registered clients up to which a plugin may be replaced; with more, it stays.
MAX_CARRIED_OVER = 100

#: Seconds that a registering client waits for the service's answer to the first heartbeat.
ANSWER_DEADLINE = 2.0


class Asked(TypedDict):
    """A client's request to a scheduler. It has plain values by name, because the two may have
    different versions of daskscope. ``settings`` come from :func:`daskscope.config.by_name`,
    ``registrant`` has fields of :class:`Registrant`.
    """

    version: str
    settings: dict[str, Any]
    registrant: dict[str, Any]


class Installed(TypedDict, total=False):
    """The scheduler's answer to a client: plain values by name.

    ``refused`` says what is wrong with the request, ``problem`` why nothing is delivered. If no
    plugin is installed, the answer contains only one of these. The settings of ``registrant`` are
    in force; ``differing`` names those that the asking client has set otherwise, except its
    opt-outs, because they apply. ``url`` is None if data goes to no service.
    """

    refused: str
    cluster_id: str
    url: str | None
    problem: str | None
    registrant: dict[str, Any]
    differing: list[str]


def asked(settings: Settings, registrant: Registrant) -> Asked:
    """Return the request that a client sends to :func:`install`."""
    described = asdict(registrant)
    if not registrant.pipeline:
        # Schedulers of before this field fail on what they do not know.
        del described["pipeline"]
    return Asked(version=__version__, settings=by_name(settings), registrant=described)


async def install(asked: Asked, dask_scheduler: Scheduler) -> Installed:
    """Install the plugin unless it is installed; runs on the scheduler.

    It raises nothing, because Dask would log the request, which contains the token.
    """
    try:
        settings = of_client(asked["settings"], asked["version"])
        # A newer client may say more of itself. Unlike a setting, that is no opt-out.
        known = {field.name for field in fields(Registrant)} & asked["registrant"].keys()
        registrant = Registrant(**{name: asked["registrant"][name] for name in known})
        return await _install(settings, registrant, dask_scheduler)
    except ConfigurationError as error:
        return Installed(refused=str(error))
    except Exception as error:
        contain(error)
        return Installed(problem=f"daskscope {__version__} failed on the scheduler ({error!r})")


async def _install(settings: Settings, registrant: Registrant, scheduler: Scheduler) -> Installed:
    # It reads files and caches the results, so run it off the loop.
    await asyncio.to_thread(read_once)
    # No await between check and change, so that two clients cannot both be first.
    plugin = scheduler.plugins.get(NAME)
    assert plugin is None or isinstance(plugin, Plugin)
    if plugin is not None:
        # Dask starts a preloaded plugin after all preloads, but accepts clients before.
        await plugin.start(scheduler)
        if plugin.failed is not None:
            # A failed plugin must not block other clients.
            scheduler.remove_plugin(NAME)
            plugin = None
    if plugin is None and not settings.can_report():
        return Installed(problem="no token")
    if plugin is None or _replaces(plugin, registrant, settings):
        before, plugin = plugin, Plugin(settings, registrant)
        await plugin.start(scheduler)
        if plugin.failed is not None:
            return Installed(problem=plugin.failed)
        # Only now: the old plugin must not remove hooks that the new one has installed.
        if before is not None:
            _hand_over(before, plugin)
            scheduler.remove_plugin(NAME)
        scheduler.add_plugin(plugin, name=NAME)
    _admit(plugin, registrant, settings)
    if plugin.session is not None:
        await until(plugin.session.sender.first_answer.is_set, ANSWER_DEADLINE)
    return _installed(plugin, settings, scheduler)


def _replaces(plugin: Plugin, registrant: Registrant, settings: Settings) -> bool:
    """Return whether a new registration replaces ``plugin``.

    It does only while no service has accepted any data, and if the same user on the same host
    registers with another destination: the first may have been a mistake. Otherwise a new plugin
    would lose what this one has counted so far.
    """
    first, session = plugin.registrant, plugin.session
    return (
        session is not None
        and session.sender.url is None
        and not session.sender.is_well()
        and first.client is not None
        and settings.can_report()
        and (first.user, first.host) == (registrant.user, registrant.host)
        and any(getattr(plugin.settings, name) != getattr(settings, name) for name in _ADDRESSEE)
        and len(plugin.registered) <= MAX_CARRIED_OVER
    )


def _hand_over(before: Plugin, plugin: Plugin) -> None:
    """Stop the plugin ``before``, and apply its clients' opt-outs to ``plugin``."""
    for registrant, settings in before.registered.values():
        _admit(plugin, registrant, settings)
    before.leave()


def _admit(plugin: Plugin, registrant: Registrant, settings: Settings) -> None:
    """Store the client's user, and the opt-outs in its own ``settings``."""
    if plugin.session is not None and registrant.client is not None:
        plugin.session.observer.client_is(registrant.client, registrant.user, refused_by(settings))
        if len(plugin.registered) <= MAX_CARRIED_OVER:
            plugin.registered[registrant.client] = registrant, settings


def _installed(plugin: Plugin, settings: Settings, scheduler: Scheduler) -> Installed:
    """Return the answer to a client with ``settings``."""
    session, in_force, endpoint = plugin.session, plugin.settings, plugin.settings.endpoint
    url: str | None = None
    problem: str | None = "daskscope has stopped on the scheduler"
    if session is not None:
        in_force = session.observer.refusals.in_force(in_force)
        url, problem = session.sender.url, session.sender.problem
        if not session.sender.first_answer.is_set():
            problem = f"no answer yet from {endpoint}; the scheduler keeps trying"
    heeded = refused_by(settings)
    if settings.token is None:
        # A client without a token uses the registered token and its endpoint.
        heeded |= {"token", "endpoint"}
    return Installed(
        cluster_id=scheduler.id,
        url=None if in_force.otlp_only else url or f"{endpoint}/clusters/{scheduler.id}",
        problem=problem,
        registrant=asdict(plugin.registrant),
        differing=[
            field.name
            for field in fields(Settings)
            if field.name not in heeded | CLIENTS_OWN
            and getattr(settings, field.name) != getattr(in_force, field.name)
        ],
    )
