"""Installs the plugin in a scheduler: ``register()`` from a client, or a preload."""

from __future__ import annotations

import asyncio
import html
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Generator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import click
from distributed import Client, get_client
from distributed.scheduler import Scheduler

from daskscope.admission import Installed, asked
from daskscope.admission import install as put_into
from daskscope.calling_code import send_calling_code, send_no_calling_code
from daskscope.cell_summary import summarize_cells
from daskscope.config import Settings, path_of, settings
from daskscope.containment import guarded
from daskscope.defaults import argument_name, leaves
from daskscope.errors import ConfigurationError, NotOnScheduler
from daskscope.installation import address_of, install_on_scheduler, not_seen
from daskscope.observe.cluster import environment
from daskscope.observe.cluster.users import Registrant
from daskscope.observe.tasks.trace_context import carried_from
from daskscope.pipeline import pipeline_of
from daskscope.plugin import NAME, Plugin
from daskscope.program_name import program_name
from daskscope.propagate import send_context_with_graphs
from daskscope.shutdown.client import heed_shutdowns
from daskscope.version import __version__

logger = logging.getLogger("daskscope")

# Counts of contained errors in the threads of this process's clients.
_errors: dict[str, int] = {}

_NOTHING_IS_RECORDED = (
    "daskscope: no token is set, so this cluster is not recorded. Make one with `daskscope "
    "token create`, then pass it as register(token=…), or set daskscope.token in Dask's "
    "configuration or DASK_DASKSCOPE__TOKEN in the environment. To send OpenTelemetry to a backend "
    "of yours only, without a service, set daskscope.otlp.only."
)

_REGISTERED_BEFORE = (
    "daskscope: this cluster is already registered. These settings of the new call were "
    "ignored: {names}. Settings are fixed until the cluster closes; start a new one to "
    "change them. (Opt-outs always apply.)"
)

_OTLP_ONLY = "sending OTLP only"

_NOT_ON_SCHEDULER = """\
the scheduler at {address} cannot import daskscope ({reason}). Do one of these:
  1. install daskscope {version} in the scheduler's environment or image
  2. send this copy there and let pip install it; it stays until that environment is replaced:
         daskscope.register(install=True)
  3. start the scheduler from an environment that has it:
         dask scheduler --preload daskscope\
"""


@dataclass(frozen=True, slots=True)
class Registration:
    """The result of a ``register()``.

    ``cluster_id`` is None if nothing was registered. ``url`` is the address of the cluster's page;
    None also if the cluster sends OTLP only. ``problem`` says what is wrong, or is None.
    ``settings_of`` names the user whose settings apply, if another user registered first.
    ``not_in_force`` lists settings of this call that were ignored, named as in ``daskscope.yaml``.
    """

    cluster_id: str | None
    url: str | None
    problem: str | None
    settings_of: str | None = None
    not_in_force: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return where to look, and what is wrong."""
        if self.cluster_id is None:
            return f"<daskscope: not registered: {self.problem}>"
        return f"<daskscope: {self.url or _OTLP_ONLY}{self._notes('; ')}>"

    def __await__(self) -> Generator[None, None, Registration]:
        """Return itself: an asynchronous program awaits it, even if daskscope is disabled."""
        return self
        yield  # makes this a generator

    def _repr_html_(self) -> str:
        """Return the same as a link, for a notebook."""
        if self.cluster_id is None:
            return f"<div>daskscope: not registered: {html.escape(self.problem or '')}</div>"
        where = _OTLP_ONLY
        if self.url is not None:
            link = html.escape(self.url, quote=True)
            where = f'<a href="{link}" target="_blank" rel="noopener">{link}</a>'
        return f"<div>daskscope: {where}{html.escape(self._notes('; '))}</div>"

    def _notes(self, separator: str) -> str:
        notes = [self.problem and f"not delivering yet: {self.problem}"]
        names = ", ".join(self.not_in_force)
        if self.settings_of:
            mine = f"; this call's {names} ignored" if names else ""
            notes.append(f"the settings of {self.settings_of} apply{mine}")
        elif names:
            notes.append(f"ignored: this call's {names}")
        return "".join(separator + note for note in notes if note)


def register(
    client: Client | None = None, *, install: bool = False, **overrides: Any
) -> Registration:
    """Record the cluster of ``client`` from now on.

    Puts the daskscope plugin into the scheduler, with the settings of this process. If the plugin
    is already there, the settings of the first call stay, and the result says whose they are and
    which settings differ. Opt-outs of this call apply from now on in any case. As long as no
    service has accepted any data, the first client may call again with another ``endpoint``,
    ``token`` or ``workspace`` to correct a mistake.

    Parameters
    ----------
    client
        The client of the cluster; by default the current one.
    install
        If the scheduler lacks daskscope, send this copy there and let pip install it first, with
        its dependencies from the package index that pip uses there. The scheduler keeps working;
        this call waits. Nothing else of Dask changes there, and workers need nothing.
    **overrides
        Settings that override Dask's configuration, named as in ``daskscope.yaml``, with a double
        underscore between levels: ``endpoint``, ``token``, ``tags``,
        ``computation__code__transmit``, …

    Returns
    -------
    Registration
        Its repr shows the address of the cluster's page. With an asynchronous client, await it
        first.

    Raises
    ------
    ConfigurationError
        A setting is invalid, or there is no client, or it is closed.
    NotOnScheduler
        The scheduler cannot import daskscope, or pip cannot install it there.

    Examples
    --------
    >>> import daskscope
    >>> from distributed import Client
    >>> client = Client()
    >>> daskscope.register(endpoint="http://127.0.0.1:8690", token="dsk_…")
    <daskscope: http://127.0.0.1:8690/clusters/Scheduler-…>
    """
    chosen = settings(**overrides)
    if chosen.disabled:
        return Registration(None, None, "daskscope.disabled is true")
    call = _Call(sys._getframe(1))
    if client is None and not chosen.can_report() and not _is_there_a_client():
        return _without_token(call)
    client = current_client(client)
    # With an asynchronous client, this is a coroutine that returns a Registration: both are
    # awaitable.
    registration: Registration = client.sync(_register, client, chosen, install, call)
    # While the cell of an asynchronous client ends, its event loop cannot wait for an answer.
    if isinstance(registration, Registration) and registration.cluster_id is not None:
        guarded(_errors, None, summarize_cells, client, chosen, registration.url, _errors)
    return registration


class _Call:
    """The user's line that called :func:`register`.

    It is stored, because warnings arise elsewhere: in the thread of the client's event loop, or
    when the result is awaited.
    """

    def __init__(self, frame: FrameType) -> None:
        self._file, self._line = frame.f_code.co_filename, frame.f_lineno
        self._names = frame.f_globals

    def warn(self, message: str) -> None:
        """Issue a warning for that line, as :func:`warnings.warn` does."""
        module = dict.get(self._names, "__name__")
        # Python stores a module's issued warnings here.
        registry = dict.setdefault(self._names, "__warningregistry__", {})
        warnings.warn_explicit(
            message,
            UserWarning,
            self._file,
            self._line,
            module if isinstance(module, str) else "<string>",
            registry if isinstance(registry, dict) else None,
        )


def current_client(client: Client | None) -> Client:
    """Return ``client``, or else the current one.

    Raises
    ------
    ConfigurationError
        There is no client, it is closed, or the argument is no client.
    """
    if client is None:
        try:
            client = get_client()
        except ValueError:
            raise ConfigurationError(
                "there is no Dask client; create one first (Client()), or pass one as the "
                "first argument"
            ) from None
    given: Any = client
    if isinstance(given, str) and "://" not in given:
        # Without the text: it may be a token.
        raise ConfigurationError(
            "the first argument is a string; it must be a Dask client. Pass a token by name, "
            "as token=…"
        )
    if not isinstance(given, Client):
        raise ConfigurationError(
            f"the first argument is a {type(given).__name__}; it must be a Dask client: "
            "create one from a cluster, or from a scheduler's address, with Client(…)"
        )
    if client.status in ("closing", "closed"):
        raise ConfigurationError("the Dask client is closed; create another with Client(…)")
    return client


def _is_there_a_client() -> bool:
    try:
        get_client()
    except ValueError:
        return False
    return True


def _without_token(call: _Call) -> Registration:
    call.warn(_NOTHING_IS_RECORDED)
    return Registration(None, None, "no token")


async def _register(
    client: Client, chosen: Settings, may_install: bool, call: _Call
) -> Registration:
    try:
        await _import_on_scheduler(client)
    except ImportError as error:
        if not chosen.can_report():
            return _without_token(call)
        if not may_install:
            raise _not_on_scheduler(client, error) from None
        await install_on_scheduler(client)
        try:
            await _import_on_scheduler(client)
        except ImportError as still:
            raise not_seen(client, still) from None
    me = await asyncio.to_thread(_myself, client.id)
    installed: Installed = await client._run_on_scheduler(put_into, asked(chosen, me))
    if "refused" in installed:
        raise ConfigurationError(installed["refused"])
    if "cluster_id" not in installed and not chosen.can_report():
        return _without_token(call)
    if "cluster_id" not in installed:
        return Registration(None, None, installed["problem"])
    differing = installed["differing"]
    heed_shutdowns(client, _errors)
    # Sent only if both this client's settings and the settings in force allow it.
    if chosen.traces_transmit and "traces_transmit" not in differing:
        of_process = guarded(_errors, {}, carried_from, os.environ)
        guarded(_errors, None, send_context_with_graphs, client, of_process, _errors)
    if chosen.code_transmit and "code_transmit" not in differing:
        # The settings in force, if another client's, may want more lines than this client's.
        alike = "code_context_lines" not in differing
        lines = chosen.code_context_lines if alike else None
        guarded(_errors, None, send_calling_code, client, chosen.code_frames, lines, _errors)
    else:
        send_no_calling_code(client)
    first = installed["registrant"]
    not_in_force = tuple(map(path_of, differing))
    others = first["client"] != client.id and (differing or first["user"] != me.user)
    if not_in_force and not others:
        call.warn(_REGISTERED_BEFORE.format(names=", ".join(not_in_force)))
    return Registration(
        cluster_id=installed["cluster_id"],
        url=installed["url"],
        problem=installed["problem"],
        settings_of=f"{first['user']}@{first['host']}" if others else None,
        not_in_force=not_in_force,
    )


async def _import_on_scheduler(client: Client) -> None:
    # Only functions of the standard library, which pickle by name: the scheduler need not have
    # daskscope yet, the import does not block its loop, and if it fails, its log shows no more than
    # this call. The token is sent only to a scheduler that can import daskscope.
    await client._run_on_scheduler(
        asyncio.to_thread, importlib.import_module, "daskscope.admission"
    )


def _not_on_scheduler(client: Client, reason: ImportError) -> NotOnScheduler:
    address = address_of(client)
    return NotOnScheduler(
        _NOT_ON_SCHEDULER.format(address=address, reason=reason, version=__version__)
    )


def _myself(client: str | None = None) -> Registrant:
    # Looking up the user's name may use the network: not on an event loop.
    return Registrant(
        environment.user(),
        environment.host(),
        client,
        guarded(_errors, "", program_name),
        guarded(_errors, {}, pipeline_of, os.environ),
    )


# --- preload --------------------------------------------------------------------------------------


async def set_up(dask_scheduler: Scheduler, **options: Any) -> None:
    """Install the plugin in a scheduler that starts, with the settings of its process.

    ``options`` are those of the command line, which override Dask's configuration.
    """
    given = {name.removeprefix("daskscope_"): value for name, value in options.items()}
    try:
        chosen = settings(**given)
    except ConfigurationError as error:
        # Invalid settings must not stop the scheduler.
        logger.warning("%s; the cluster runs without daskscope", error)
        return
    if chosen.disabled:
        return
    if not chosen.can_report():
        logger.warning(_NOTHING_IS_RECORDED)
        return
    # Reads packages' versions from files and caches them: off the loop.
    await asyncio.to_thread(environment.read_once)
    registrant = await asyncio.to_thread(_myself)
    if NAME in dask_scheduler.plugins:
        return  # a client was first, and may have opted out of data that these settings allow
    # Dask starts the plugin right after the preloads.
    dask_scheduler.add_plugin(Plugin(chosen, registrant), name=NAME)


def _option(path: str, default: Any) -> click.Option:
    kind: click.ParamType[Any] = click.STRING
    if isinstance(default, bool):
        kind = click.BOOL
    elif isinstance(default, int):
        kind = click.INT
    many = isinstance(default, list)
    return click.Option(
        [f"--daskscope-{path.replace('.', '-')}", f"daskscope_{argument_name(path)}"],
        type=kind,
        multiple=many,
        default=None,
        callback=(lambda _context, _option, value: list(value) or None) if many else None,
        help=f"daskscope.{path}; {default!r} unless Dask's configuration says otherwise.",
    )


#: Dask calls this for ``dask scheduler --preload daskscope``, with the options of the command line:
#: one for each setting that is not a mapping.
dask_setup = click.Command(
    "daskscope",
    callback=set_up,
    params=[_option(path, default) for path, default in leaves() if not isinstance(default, dict)],
    help="Record this cluster with daskscope.",
)
