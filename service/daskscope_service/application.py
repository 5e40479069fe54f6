"""Puts the service together: database, writer, views, errors, headers."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from flask import Flask
from sqlalchemy import Engine

from daskscope.protocol import MAX_BEAT_BYTES
from daskscope_service.accounts import access
from daskscope_service.accounts.api import login, tokens, workspaces
from daskscope_service.accounts.pages import account, activation, members, openid, workspace
from daskscope_service.accounts.pages import audit as audit_page
from daskscope_service.accounts.pages import tokens as tokens_page
from daskscope_service.accounts.token_cache import TokenCache
from daskscope_service.api import health, metrics, openapi, reads, trace_events, traces
from daskscope_service.costs import budget_api as budget
from daskscope_service.costs import opencost, price_list, prices_page
from daskscope_service.costs import prices_api as prices
from daskscope_service.costs.usage_totals import sum_up
from daskscope_service.db import clock, key_register, time_limit
from daskscope_service.db.database_metrics import DatabaseCollector
from daskscope_service.db.engine import alone, open_database
from daskscope_service.db.log_size import LOOK_SECONDS, empty_log
from daskscope_service.findings import api as findings
from daskscope_service.findings import mute_page, thresholds_page
from daskscope_service.findings import mutes_api as mutes
from daskscope_service.findings import pages as findings_page
from daskscope_service.findings import thresholds_api as thresholds
from daskscope_service.findings.evaluator import ROUND_SECONDS, Evaluator
from daskscope_service.findings.otlp_events import SEND_SECONDS, FindingEvents
from daskscope_service.ingest import heartbeat_api as heartbeats
from daskscope_service.ingest import otlp_api as otlp
from daskscope_service.ingest.decoding_turns import DecodingTurns
from daskscope_service.ingest.fast_path import HeartbeatFastPath
from daskscope_service.ingest.heartbeat import BeatStore
from daskscope_service.ingest.last_usage import LastUsage
from daskscope_service.ingest.otlp import LogStore, SpanStore
from daskscope_service.ingest.points import MetricStore
from daskscope_service.ingest.quotas import SECONDS as QUOTA_SECONDS
from daskscope_service.ingest.quotas import Quotas
from daskscope_service.ingest.writer import Writer
from daskscope_service.jobs import api as jobs
from daskscope_service.jobs import correction_pages
from daskscope_service.jobs import corrections_api as job_corrections
from daskscope_service.jobs import pages as jobs_page
from daskscope_service.jobs.namer import ROUND_SECONDS as NAMING_SECONDS
from daskscope_service.jobs.namer import Namer
from daskscope_service.notifications import api as targets
from daskscope_service.notifications import pages as notifications
from daskscope_service.notifications.notifier import Notifier, delete_old_notices
from daskscope_service.notifications.sending import Sender, TestMessages
from daskscope_service.pages import (
    cluster_charts,
    cluster_list,
    csv_downloads,
    events_and_logs,
    overview,
    people,
    profile,
    report,
    report_api,
    task_stream,
    views,
)
from daskscope_service.periodic import PeriodicTask
from daskscope_service.policies import api as policies
from daskscope_service.policies import pages as idle
from daskscope_service.policies.enforcer import enforce_policies
from daskscope_service.queries.logs import LogReader, from_influxdb, own_logs
from daskscope_service.retention import api as retention
from daskscope_service.retention import pages as retention_page
from daskscope_service.retention.rounds import removal
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.services import Closing, Services, services
from daskscope_service.settings import Settings
from daskscope_service.shutdowns import api as commands
from daskscope_service.shutdowns import pages as shutdown
from daskscope_service.shutdowns.command_queue import CommandQueue
from daskscope_service.telemetry.embedded import EmbeddedSeries
from daskscope_service.telemetry.influx import InfluxSeries
from daskscope_service.telemetry.influx_logs import InfluxLogs
from daskscope_service.telemetry.influx_rows import InfluxDatabase, own_clusters
from daskscope_service.telemetry.influx_spans import InfluxSpans
from daskscope_service.telemetry.influxql import InfluxQL
from daskscope_service.telemetry.spans import EmbeddedSpans, SpanReader
from daskscope_service.telemetry.store import SeriesStore
from daskscope_service.web import compression, forms, link_bounds, request_log
from daskscope_service.web.header_bounds import bounded
from daskscope_service.web.problems import install as install_problems
from daskscope_service.web.trusted_proxy import Forwarded

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

#: Seconds between two looks at what idle policies come to.
_ENFORCE_SECONDS = 5.0
#: Seconds between two looks at what there is to send, and between two at what is to be forgotten.
_NOTIFY_SECONDS = 5.0
_PRUNE_SECONDS = 3600.0
_SUM_SECONDS = 60.0
#: Seconds between two looks at which clusters fell silent before their last usage was stored.
_LAST_USAGE_SECONDS = 20.0
#: Seconds between two looks at what a wrong clock has planned.
_CLOCK_SECONDS = 3600.0

#: Of an answer that says nothing else of how it may be kept: pages show one user's data.
_UNKEPT = ("Cache-Control", "private, no-store")

_HEADERS = [
    # No inline script or style, nothing from elsewhere: text of users that slipped through as
    # HTML could still not run.
    (
        "Content-Security-Policy",
        "default-src 'self'; img-src 'self' data:; object-src 'none'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
]

#: Where users come by HTTPS: for a year, browsers try no other way.
_HTTPS_ALONE = ("Strict-Transport-Security", "max-age=31536000")


#: What programs talk to.
PROGRAMS = (
    *(
        heartbeats,
        otlp,
        reads,
        findings,
        mutes,
        thresholds,
        jobs,
        job_corrections,
        traces,
        trace_events,
        commands,
        policies,
        targets,
        budget,
        prices,
        retention,
    ),
    *(tokens, workspaces, login, openapi, health, metrics),
    report_api,
)

#: What people see.
PAGES = (
    *(account, activation, openid, tokens_page, members, prices_page, retention_page),
    *(overview, cluster_list, cluster_charts, task_stream, views, people),
    *(shutdown, idle, notifications),
    *(
        findings_page,
        mute_page,
        thresholds_page,
        jobs_page,
        correction_pages,
        profile,
        events_and_logs,
        report,
        csv_downloads,
        audit_page,
        workspace,
    ),
)


class _Service(Flask):
    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        # Nothing here is async: Flask need not look for it in each hook of each request.
        return func


def create_app(settings: Settings) -> Flask:
    """Return the WSGI application. It owns a database and threads: end it with :func:`close_app`.

    Raises
    ------
    ConfigurationError
        The database cannot be opened, or is of another revision than this code needs, or a key
        that users' code in it is encrypted with is missing.
    """
    app = _Service("daskscope_service", static_folder=None)
    app.config["SETTINGS"] = settings
    forwarded = Forwarded(settings.trusted_proxies)
    added = _added(settings)
    parts = _start(settings, forwarded, headers(settings))
    parts.install(app)
    request_log.install(app, parts.instruments)
    forms.install(app)
    compression.install(app)
    link_bounds.install(app)  # after it, so that it sees pages before they are compressed
    install_problems(app)
    app.register_error_handler(access.SignInAgain, account.sign_in_again)
    access.install(app, settings)
    app.wsgi_app = _with_headers(  # type: ignore[assignment, method-assign]
        forwarded.middleware(bounded(_with_limit(app.wsgi_app))), added
    )
    for part in PROGRAMS:
        app.register_blueprint(part.blueprint)
    for page in PAGES:
        app.register_blueprint(page.blueprint)
    return app


def close_app(app: Flask) -> None:
    """Write what waits, end the threads and close the database."""
    services(app).close()


def _start(
    settings: Settings, forwarded: Forwarded, headers: Sequence[tuple[str, str]]
) -> Services:
    """Open the database and start the threads. ``headers``: of what is answered without Flask."""
    engine = open_database(settings)
    engine.hide_parameters = True  # rows hold what users sent: errors in the log must not show them
    with alone(engine) as connection:
        key_register.check(connection)
    instruments = ServiceMetrics()
    instruments.registry.register(DatabaseCollector(engine))
    writer = Writer(engine, capacity=settings.queue_size, instruments=instruments)
    token_cache = TokenCache(engine)
    quotas = Quotas(engine, settings, instruments)
    beats = BeatStore(
        engine,
        writer,
        quotas,
        price_list.of(settings),
        keeps_costs=bool(settings.opencost_url),
    )
    turns = DecodingTurns(most_of_all=(settings.threads + 1) // 2)
    answers = heartbeats.Answers(
        writer, beats, CommandQueue(engine), quotas, instruments, settings.url, turns
    )
    series, spans, read_logs = _readers(settings, engine)
    sender = Sender(settings.notify_networks)
    return Services(
        engine=engine,
        writer=writer,
        quotas=quotas,
        instruments=instruments,
        tokens=token_cache,
        openid=openid.make_provider(settings),
        # A test takes a request's thread for as long as its target likes: never most of them.
        trials=TestMessages(sender, max(1, settings.threads // 4)),
        turns=turns,
        heartbeats=answers,
        fast_path=HeartbeatFastPath(forwarded, token_cache, answers, instruments, headers),
        metric_store=MetricStore(engine, writer, quotas),
        span_store=SpanStore(engine, writer),
        log_store=LogStore(engine, writer),
        series=series,
        spans=spans,
        read_logs=read_logs,
        background=_background(settings, engine, writer, series, quotas, sender, instruments),
    )


def _readers(settings: Settings, engine: Engine) -> tuple[SeriesStore, SpanReader, LogReader]:
    """Return what reads time series, spans and log records, from where they are stored."""
    if not settings.influxdb_url:
        return EmbeddedSeries(engine), EmbeddedSpans(engine), own_logs
    influxdb = InfluxQL(settings.influxdb_url, settings.influxdb_token)
    own = own_clusters(engine)
    database = InfluxDatabase(influxdb, settings.influxdb_database, own)
    spans = InfluxDatabase(influxdb, settings.influxdb_spans_database, own)
    return InfluxSeries(database), InfluxSpans(spans), from_influxdb(InfluxLogs(database))


def _background(
    settings: Settings,
    engine: Engine,
    writer: Writer,
    series: SeriesStore,
    quotas: Quotas,
    sender: Sender,
    instruments: ServiceMetrics,
) -> tuple[Closing, ...]:
    """Start the periodic tasks, and return them in the order in which they end."""
    notifier = Notifier(
        engine, sender, url=settings.url, silent_after=settings.silent_after, up_since=time.time()
    )
    events = FindingEvents(engine, settings, settings.silent_after, instruments)
    evaluator = Evaluator(engine, series, settings.silent_after, writer.is_busy, events.report)
    namer = Namer(engine, settings.silent_after)
    enforce = functools.partial(enforce_policies, engine, settings.silent_after)
    keeps_costs = bool(settings.opencost_url)
    last_usage = LastUsage(engine, settings.silent_after, keeps_costs=keeps_costs)
    ended = threading.Event()
    forget = functools.partial(delete_old_notices, engine, ended)
    return (
        PeriodicTask(
            "clock", functools.partial(clock.repair, engine), _CLOCK_SECONDS, first_after=0.0
        ),
        PeriodicTask("policies", enforce, _ENFORCE_SECONDS),
        PeriodicTask("notifications", notifier.round, _NOTIFY_SECONDS),
        notifier,
        PeriodicTask("forgetting", forget, _PRUNE_SECONDS, ended=ended),
        PeriodicTask("last usage", last_usage.round, _LAST_USAGE_SECONDS),
        PeriodicTask("summing", functools.partial(sum_up, engine), _SUM_SECONDS),
        *_of_opencost(settings, engine),
        PeriodicTask("findings", evaluator.round, ROUND_SECONDS),
        # After it: what its last round found is sent, too.
        PeriodicTask("finding events", events.round, SEND_SECONDS),
        PeriodicTask("jobs", namer.round, NAMING_SECONDS),
        PeriodicTask("counting", quotas.round, QUOTA_SECONDS),
        PeriodicTask("emptying the log", functools.partial(empty_log, engine), LOOK_SECONDS),
        removal(engine, interval=settings.retention_interval, instruments=instruments),
    )


def _of_opencost(settings: Settings, engine: Engine) -> Iterable[PeriodicTask]:
    connection = opencost.of(settings)
    if connection is not None:
        ended = threading.Event()
        reader = opencost.OpenCostReader(engine, connection, settings.silent_after, ended)
        seconds = opencost.ROUND_SECONDS
        yield PeriodicTask(opencost.WORK, reader.round, seconds, lease=reader.lease, ended=ended)


def headers(settings: Settings) -> list[tuple[str, str]]:
    """Return the headers of an answer that does not come from Flask."""
    return [_UNKEPT, *_added(settings)]


def _added(settings: Settings) -> list[tuple[str, str]]:
    return [*_HEADERS, _HTTPS_ALONE] if settings.secure else _HEADERS


def limits(settings: Settings) -> dict[str, int]:
    """Return how many bytes the body of a request may have, by its path; of others 64 KiB."""
    otlp_paths = dict.fromkeys(otlp.PATHS, settings.max_body_bytes)
    return {heartbeats.PATH: MAX_BEAT_BYTES, **otlp_paths}


def _with_limit(answer: WSGIApplication) -> WSGIApplication:
    # What changes something may take longer: it works in short transactions.
    def answer_in_time(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        # Flask reads "get" as GET.
        if environ["REQUEST_METHOD"].upper() not in ("GET", "HEAD"):
            return answer(environ, start_response)
        with time_limit.limited():
            return answer(environ, start_response)

    return answer_in_time


def _with_headers(answer: WSGIApplication, added: Sequence[tuple[str, str]]) -> WSGIApplication:
    # Not by Flask, which would look at each name and value of them in each answer.
    def answer_with(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            kept = any(name.lower() == "cache-control" for name, _ in headers)
            unkept = [] if kept else [_UNKEPT]
            return start_response(status, [*headers, *unkept, *added], *rest)

        return answer(environ, start)

    return answer_with
