"""Decides who may put the plugin into a scheduler or replace it, and answers a client that asks.

The first client whose settings say where to report gets the plugin, and its settings stay. Another
one replaces it only to correct a mistake: see :func:`_replaces`. What a later client refuses is
heeded in any case.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, fields
from typing import Any, TypedDict

from distributed.scheduler import Scheduler

from daskscope.config import Settings, by_name, of_client
from daskscope.containment import contain
from daskscope.errors import ConfigurationError
from daskscope.observe.cluster.environment import read_once
from daskscope.observe.cluster.opt_outs import refused_by
from daskscope.observe.cluster.users import Registrant
from daskscope.plugin import NAME, Plugin
from daskscope.timer import until
from daskscope.version import __version__

#: Settings that say to whom beats go: with wrong ones nobody takes any.
_ADDRESSEE = ("endpoint", "token", "workspace", "otlp_only")

#: Clients that may have registered where a plugin is replaced; with more it stays.
MAX_CARRIED_OVER = 100

#: Seconds that a client which registers waits to hear whether the service takes its beats.
ANSWER_DEADLINE = 2.0


class Asked(TypedDict):
    """A client's request to a scheduler: plain values by name, because the two may have different
    versions of daskscope. ``settings`` are those of :func:`daskscope.config.by_name`.
    """

    version: str
    settings: dict[str, Any]
    registrant: dict[str, Any]


class Installed(TypedDict, total=False):
    """The scheduler's answer to a client: plain values by name. ``refused`` says what is wrong with
    the request, and ``problem`` why nothing is delivered; without a plugin it holds one of the two.

    The settings of the client ``registrant`` are in force; ``differing`` names those that the
    asking client has set otherwise, except its opt-outs, because they apply. ``url`` is None if
    data goes to no service.
    """

    refused: str
    cluster_id: str
    url: str | None
    problem: str | None
    registrant: dict[str, Any]
    differing: list[str]


def asked(settings: Settings, registrant: Registrant) -> Asked:
    """Return what a client sends to :func:`install`."""
    return Asked(version=__version__, settings=by_name(settings), registrant=asdict(registrant))


async def install(asked: Asked, dask_scheduler: Scheduler) -> Installed:
    """Put the plugin into the scheduler unless it is there; runs on the scheduler.

    Raises nothing: Dask would log what was asked, and the token with it.
    """
    try:
        settings = of_client(asked["settings"], asked["version"])
        return await _install(settings, Registrant(**asked["registrant"]), dask_scheduler)
    except ConfigurationError as error:
        return Installed(refused=str(error))
    except Exception as error:
        contain(error)
        return Installed(problem=f"daskscope {__version__} failed on the scheduler ({error!r})")


async def _install(settings: Settings, registrant: Registrant, scheduler: Scheduler) -> Installed:
    # They read files and remember what they found: off the loop.
    await asyncio.to_thread(read_once)
    # Nothing waits between the look and the act, so that of two clients one is first.
    plugin = scheduler.plugins.get(NAME)
    assert plugin is None or isinstance(plugin, Plugin)
    if plugin is not None:
        # Of a preload Dask has it started after all preloads, and takes clients before.
        await plugin.start(scheduler)
        if plugin.failed is not None:
            # It must not keep others out.
            scheduler.remove_plugin(NAME)
            plugin = None
    if plugin is None and not settings.can_report():
        return Installed(problem="no token")
    if plugin is None or _replaces(plugin, registrant, settings):
        before, plugin = plugin, Plugin(settings, registrant)
        await plugin.start(scheduler)
        if plugin.failed is not None:
            return Installed(problem=plugin.failed)
        # Only now: what the new one has put into the scheduler, the other must not take out.
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

    It does only while no service has accepted any data, and the same user registers on the same
    host with another address: the first one may have been a mistake. Otherwise a new plugin would
    lose what this one has counted so far.
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
    """End the plugin ``before``. ``plugin`` goes on to heed what its clients refuse."""
    for registrant, settings in before.registered.values():
        _admit(plugin, registrant, settings)
    before.leave()


def _admit(plugin: Plugin, registrant: Registrant, settings: Settings) -> None:
    """Remember whose client that is, and what its own ``settings`` refuse."""
    if plugin.session is not None and registrant.client is not None:
        plugin.session.observer.client_is(registrant.client, registrant.user, refused_by(settings))
        if len(plugin.registered) <= MAX_CARRIED_OVER:
            plugin.registered[registrant.client] = registrant, settings


def _installed(plugin: Plugin, settings: Settings, scheduler: Scheduler) -> Installed:
    """Return what a client with ``settings`` gets to know."""
    session, in_force, endpoint = plugin.session, plugin.settings, plugin.settings.endpoint
    url: str | None = None
    problem: str | None = "it has ended there"
    if session is not None:
        in_force = session.observer.refusals.in_force(in_force)
        url, problem = session.sender.url, session.sender.problem
        if not session.sender.first_answer.is_set():
            problem = f"no answer yet from {endpoint}; the scheduler keeps trying"
    heeded = refused_by(settings)
    if settings.token is None:
        # It joins who has one, wherever the service is.
        heeded |= {"token", "endpoint"}
    return Installed(
        cluster_id=scheduler.id,
        url=None if in_force.otlp_only else url or f"{endpoint}/clusters/{scheduler.id}",
        problem=problem,
        registrant=asdict(plugin.registrant),
        differing=[
            field.name
            for field in fields(Settings)
            if field.name not in heeded
            and getattr(settings, field.name) != getattr(in_force, field.name)
        ],
    )
