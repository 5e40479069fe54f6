"""Puts the service together: database, writer, views, errors, headers."""

from __future__ import annotations

import functools
import time

from flask import Flask, Response, request

from daskscope_service import request_log
from daskscope_service.accounts import access
from daskscope_service.api import (
    budget,
    commands,
    health,
    heartbeats,
    metrics,
    openapi,
    otlp,
    policies,
    reads,
    targets,
)
from daskscope_service.commands.outbox import Outbox
from daskscope_service.commands.patrol import patrol
from daskscope_service.db import key_register
from daskscope_service.db.engine import alone, open_database
from daskscope_service.forwarded import Forwarded
from daskscope_service.ingest.body import drain
from daskscope_service.ingest.heartbeat import BeatStore
from daskscope_service.ingest.otlp import LogStore, SpanStore
from daskscope_service.ingest.points import MetricStore
from daskscope_service.ingest.writer import Writer
from daskscope_service.instruments import Instruments
from daskscope_service.notify.rounds import notify, prune
from daskscope_service.pages import account, idle, notifications, shutdown, views
from daskscope_service.problems import install as install_problems
from daskscope_service.rounds import Rounds
from daskscope_service.series.embedded import EmbeddedSeries
from daskscope_service.settings import Settings

#: Seconds between two looks at what idle policies come to.
_PATROL_SECONDS = 5.0
#: Seconds between two looks at what there is to tell, and between two at what is to be forgotten.
_NOTIFY_SECONDS = 5.0
_PRUNE_SECONDS = 3600.0

_HEADERS = {
    # No inline script or style, nothing from elsewhere: text of users that slipped through as
    # HTML could still not run.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


#: What programs talk to.
PROGRAMS = (
    *(heartbeats, otlp, reads, commands, policies, targets, budget),
    *(openapi, health, metrics),
)


def create_app(settings: Settings) -> Flask:
    """Return the WSGI application. It owns a database and threads: end it with :func:`close_app`.

    Raises
    ------
    ConfigurationError
        The database cannot be opened, or is of another revision than this code needs, or a key
        that users' code in it is encrypted with is missing.
    """
    app = Flask("daskscope_service", static_folder=None)
    app.config["SETTINGS"] = settings
    engine = open_database(settings)
    engine.hide_parameters = True  # rows hold what users sent: errors in the log must not tell them
    with alone(engine) as connection:
        key_register.check(connection)
    instruments = Instruments()
    instruments.registry.register(metrics.DatabaseCollector(engine))
    writer = Writer(engine, capacity=settings.queue_size, instruments=instruments)
    app.extensions["daskscope.instruments"] = instruments
    app.extensions["daskscope.engine"] = engine
    app.extensions["daskscope.writer"] = writer
    app.extensions["daskscope.beats"] = BeatStore(engine, writer)
    app.extensions["daskscope.outbox"] = Outbox(engine)
    app.extensions["daskscope.series"] = EmbeddedSeries(engine)
    app.extensions["daskscope.metrics"] = MetricStore(engine, writer)
    app.extensions["daskscope.spans"] = SpanStore(engine, writer)
    app.extensions["daskscope.logs"] = LogStore(engine, writer)
    app.extensions["daskscope.patrol"] = Rounds(
        "policies", functools.partial(patrol, engine, settings.silent_after), _PATROL_SECONDS
    )
    told = functools.partial(notify, engine, settings.url, settings.silent_after, time.time())
    app.extensions["daskscope.notifier"] = Rounds("notifications", told, _NOTIFY_SECONDS)
    app.extensions["daskscope.pruner"] = Rounds(
        "forgetting", functools.partial(prune, engine), _PRUNE_SECONDS
    )
    request_log.install(app, instruments)
    install_problems(app)
    access.install(app, settings.url)
    app.after_request(_finish)
    app.wsgi_app = Forwarded(app.wsgi_app, settings.trusted_proxies)  # type: ignore[method-assign]
    for part in (*PROGRAMS, account, views, shutdown, idle, notifications):
        app.register_blueprint(part.blueprint)
    return app


def close_app(app: Flask) -> None:
    """Write what waits, end the threads and close the database."""
    for name in ("patrol", "notifier", "pruner"):
        app.extensions[f"daskscope.{name}"].close()
    app.extensions["daskscope.writer"].close()
    app.extensions["daskscope.engine"].dispose()


def _finish(response: Response) -> Response:
    drain(request)
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response
