"""Prints one line after each IPython cell that computed: how long, how many tasks, what stood out.

The scheduler answers at once. What only the service knows, the cost and the findings, is added to
the line when it is there; only Jupyter can change a line that it has shown.
"""

from __future__ import annotations

import html
import math
import sys
import threading
import time
import weakref
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from distributed import Client

from daskscope.config import Settings
from daskscope.containment import Contained
from daskscope.durations import say_seconds, seconds_together
from daskscope.errors import DaskscopeError
from daskscope.latest_computations import SentComputation, latest_computations
from daskscope.observe.tasks.of_clients import MAX_ROWS
from daskscope.one_line import one_line
from daskscope.protocol import MAX_AMOUNT
from daskscope.service_client import ServiceClient, service_client
from daskscope.task_context import method_of_class

#: Seconds that a cell's end waits for the scheduler's answer. Without one, there is no line, and
#: for some seconds no cell waits for one.
PATIENCE, PAUSE_UNANSWERED = 2.0, 20.0
#: Seconds after which what a cell sent has left the client.
ON_ITS_WAY = 0.05
#: Seconds between questions to the service for what it found, which it knows a beat later.
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
#: Seconds from which the share of idle threads says something.
LONG = 1.0
#: Lower costs are not shown as a number.
LEAST_COST = 0.01
#: Characters of a currency in the line.
MAX_CURRENCY = 20
#: Computations that are known to have had their line; beyond it the oldest are forgotten.
MAX_SHOWN = 2_000
#: Characters of a finding's sentence in the line.
MAX_SENTENCE = 160


@dataclass(slots=True)
class _Watched:
    """A registered client: whether it has sent a graph since the last cell, and what was shown.

    ``run_on`` are the ids of computations whose end has no line yet. ``unanswered_at`` is
    when the last cell ended, if the scheduler has not been heard since; it is asked again at
    ``ask_at``. Both are of the monotonic clock.
    """

    settings: Settings
    url: str | None
    sent: bool = False
    shown: dict[str, None] = field(default_factory=dict)
    run_on: set[str] = field(default_factory=set)
    unanswered_at: float = math.inf
    ask_at: float = 0.0


#: The registered clients of this process.
_clients: weakref.WeakKeyDictionary[Client, _Watched] = weakref.WeakKeyDictionary()
#: The shells that call us after each cell.
_shells: weakref.WeakSet[Any] = weakref.WeakSet()
#: Lines that are completed at the same time; further ones stay as they are.
_completing = threading.BoundedSemaphore(4)


def summarize_cells(
    client: Client, settings: Settings, url: str | None, drops: MutableMapping[str, int]
) -> None:
    """Print a line after each cell in which ``client`` computes, if this is an IPython shell.

    ``url`` is the address of the cluster's page. The last call for a client applies: its
    ``settings`` may turn the lines off. Errors are counted in ``drops``.
    """
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = None if get_ipython is None else get_ipython()
    if not settings.notebook_summary or shell is None:
        _clients.pop(client, None)
        return
    watched = _Watched(settings, url)
    # From now on the scheduler stores what it sends of this client. An older one cannot: then this
    # fails, and there are no lines.
    before = client.sync(latest_computations, client, callback_timeout=PATIENCE)
    watched.shown = dict.fromkeys(one["id"] for one in before)
    if client not in _clients:
        _note_graphs(client)
    _clients[client] = watched
    if shell not in _shells:
        _shells.add(shell)
        contained = Contained(drops)
        after_cell = contained.around(_after_cell, otherwise=None)
        # IPython passes the cell's result to a function that has a parameter for it.
        shell.events.register("post_run_cell", lambda result: after_cell(contained))


def _note_graphs(client: Client) -> None:
    # All ways to submit call this method.
    before = vars(client).get("_graph_to_futures")
    of_client = weakref.ref(client)

    def _graph_to_futures(*args: Any, **kwargs: Any) -> Any:
        this = of_client()
        watched = None if this is None else _clients.get(this)
        if watched is not None:
            watched.sent = True
        submit = before or method_of_class(this, "_graph_to_futures")
        return submit(*args, **kwargs)

    # Whether the context is sent: see daskscope.task_context.
    _graph_to_futures.of_daskscope = (  # type: ignore[attr-defined]
        getattr(before, "of_daskscope", False)
    )
    setattr(client, "_graph_to_futures", _graph_to_futures)  # noqa: B010


def _after_cell(contained: Contained) -> None:
    due = [(client, one) for client, one in list(_clients.items()) if one.sent or one.run_on]
    for _, watched in due:
        watched.sent = False
    for client, watched in due:
        with contained:
            if client.status == "running":
                _summarize(client, watched)


def _summarize(client: Client, watched: _Watched) -> None:
    before, watched.unanswered_at = watched.unanswered_at, time.monotonic()
    if watched.unanswered_at < watched.ask_at:
        return
    watched.ask_at = watched.unanswered_at + PAUSE_UNANSWERED
    # Dask's client sends graphs on another connection than questions, every few milliseconds.
    time.sleep(ON_ITS_WAY)
    sent: list[SentComputation] = client.sync(
        latest_computations, client, callback_timeout=PATIENCE
    )
    watched.unanswered_at, watched.ask_at = math.inf, 0.0
    # Those that began before a cell ended that has no line, because there was no answer.
    since = time.monotonic() - before
    missed = {one["id"] for one in sent if one["now"] - one["started_at"] > since >= 0}
    missed -= watched.shown.keys()
    ended = {one["id"] for one in sent if one["ended_at"] is not None}
    new = [one for one in sent if one["id"] not in watched.shown.keys() | missed]
    earlier = [one for one in sent if one["id"] in (watched.run_on | missed) & ended]
    ids = dict.fromkeys([*missed, *(one["id"] for one in new)])
    watched.run_on = (watched.run_on | ids.keys()) - ended
    watched.shown |= ids
    for _ in range(len(watched.shown) - MAX_SHOWN):
        del watched.shown[next(iter(watched.shown))]
    if earlier:
        _show(Summary(earlier, watched.url, of_earlier_cell=True), watched.settings)
    if new:
        _show(Summary(new, watched.url), watched.settings)


def _show(summary: Summary, settings: Settings) -> None:
    from IPython.display import display

    shown: Any = display(summary, display_id=True)  # type: ignore[no-untyped-call]
    # A terminal would print a changed line once more.
    if summary.url is None or not hasattr(sys.modules["IPython"].get_ipython(), "kernel"):
        return
    if summary.goes_on or settings.token is None or not _completing.acquire(blocking=False):
        return
    # A daemon: a program that ends does not wait for the service.
    threading.Thread(
        target=Contained().around(_complete, otherwise=None),
        args=(summary, settings, shown),
        name="daskscope-cell",
        daemon=True,
    ).start()


def _complete(summary: Summary, settings: Settings, shown: Any) -> None:
    """Add what the service knows of the longest computation, once it does."""
    try:
        with service_client(settings) as service:
            for pause in PAUSES:
                time.sleep(pause)
                try:
                    if summary.complete(service):
                        break
                except DaskscopeError:
                    continue  # it is not there yet, or the service is not: the line says enough
        if summary.sentence or summary.cost:
            shown.update(summary)
    finally:
        _completing.release()


class Summary:
    """The line of one cell's ``computations``; ``url`` is the address of their cluster's page.

    With ``of_earlier_cell`` it says that they began in one. ``goes_on`` is whether one still runs.
    """

    def __init__(
        self,
        computations: Sequence[SentComputation],
        url: str | None,
        *,
        of_earlier_cell: bool = False,
    ) -> None:
        self._computations = computations
        self._of_earlier_cell = of_earlier_cell
        self.goes_on = any(one["ended_at"] is None for one in computations)
        self._longest = max(computations, key=_seconds)
        self.url = url
        if url is not None and len(computations) == 1:
            self.url = f"{url}/computations/{quote(self._longest['id'], safe='')}"
        self.sentence = ""
        self.cost = ""

    def complete(self, service: ServiceClient) -> bool:
        """Add cost and first finding; return whether no more is to be expected."""
        run = service.answer("GET", f"runs/{quote(self._longest['id'], safe='')}")
        cost, currency = run.get("cost"), run.get("currency")
        is_priced = len(self._computations) == 1 and currency
        if is_priced and isinstance(cost, float | int) and 0 <= cost <= MAX_AMOUNT:
            amount = f"{cost:,.2f}" if cost >= LEAST_COST else f"< {LEAST_COST}"
            self.cost = f"{amount} {one_line(str(currency))[:MAX_CURRENCY]}"
        answer = service.answer("GET", f"findings/{quote(self._longest['id'], safe='')}")
        findings = answer.get("findings")
        shown = (
            one
            for one in (findings if isinstance(findings, list) else ())
            if isinstance(one, dict) and not (one.get("suppressed_by") or one.get("muted"))
        )
        sentence = one_line(str(next(shown, {}).get("sentence") or ""))
        cut = sentence if len(sentence) <= MAX_SENTENCE else f"{sentence[: MAX_SENTENCE - 1]}…"
        self.sentence = cut
        return bool(self.sentence) or run.get("status") != "running"

    def __repr__(self) -> str:
        """Return the line as plain text."""
        end = [self.url] if self.url else []
        return " · ".join([*self._parts(), *end])

    def _repr_html_(self) -> str:
        """Return the line for a notebook, with a link."""
        text = " · ".join(map(html.escape, self._parts()))
        if self.url is not None:
            link = html.escape(self.url, quote=True)
            text += f' · <a href="{link}" target="_blank" rel="noopener">daskscope →</a>'
        return f'<div style="opacity: 0.75; font-size: 90%">{text}</div>'

    def _parts(self) -> list[str]:
        rows = self._computations
        tasks, done, erred, blamed, cancelled = (
            sum(one[name] for one in rows)
            for name in ("tasks", "done", "erred", "blamed", "cancelled")
        )
        seconds = seconds_together([(one["started_at"], _end(one)) for one in rows])
        # The count of a computation that is being cancelled changes from moment to moment.
        mark = "…" if self.goes_on else "✗" if erred or blamed or cancelled else "✓"
        parts = [f"{mark} {say_seconds(seconds)}"]
        parts += ["began in an earlier cell"] if self._of_earlier_cell else []
        # There may be more, which the scheduler did not store.
        more = "+" if len(rows) >= MAX_ROWS else ""
        if len(rows) > 1:
            parts.append(f"{len(rows)}{more} computations")
        many = f"{tasks:,}{more} task{'' if tasks == 1 else 's'}"
        parts.append(f"{done:,} of {many} done so far" if self.goes_on else many)
        parts += [f"{erred:,} failed"] if erred else []
        parts += [f"{blamed:,} could not run"] if blamed else []
        parts += [f"{cancelled:,} cancelled"] if cancelled and not self.goes_on else []
        parts += [self.cost] if self.cost else []
        whole = sum(sum(one["worker_seconds"].values()) for one in rows)
        if seconds >= LONG and whole and not self.goes_on:
            idle = sum(one["worker_seconds"].get("idle", 0.0) for one in rows)
            parts.append(f"threads {idle / whole:.0%} idle")
        parts += [self.sentence] if self.sentence else []
        return parts


def _end(one: SentComputation) -> float:
    return one["now"] if one["ended_at"] is None else one["ended_at"]


def _seconds(one: SentComputation) -> float:
    return max(_end(one) - one["started_at"], 0.0)
