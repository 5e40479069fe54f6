"""Installs daskscope where a scheduler runs: with pip, in a process of its own."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import site
import subprocess
import sys
from typing import Any

from distributed import Client

from daskscope.errors import NotOnScheduler
from daskscope.scrubbing import Scrubber
from daskscope.version import __version__

#: Seconds that pip may take.
DEADLINE = 600.0
#: Lines of pip's that are shown when it fails, and characters.
LAST_LINES = 15
MAX_SHOWN = 2_000

#: These run there already: pip may not put others in their place.
_STAY = ("dask", "distributed")


async def install_on_scheduler(client: Client) -> None:
    """Install this version of daskscope where the scheduler of ``client`` runs.

    What the scheduler runs of Dask stays as it is. Neither its event loop nor its tasks wait.
    pip's own settings apply there (``PIP_INDEX_URL``, its configuration file). Workers need
    nothing.

    Raises
    ------
    NotOnScheduler
        pip failed; the message shows its last lines.
    """
    # All by name, functions of the standard library alone: nothing of ours is there yet.
    on_scheduler: Any = client._run_on_scheduler
    python = await on_scheduler(asyncio.to_thread, getattr, sys, "executable")
    requirements = [f"daskscope=={__version__}"]
    for package in _STAY:
        version = await on_scheduler(asyncio.to_thread, importlib.metadata.version, package)
        requirements.append(f"{package}=={version}")
    command = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    try:
        done = await on_scheduler(
            asyncio.to_thread,
            subprocess.run,
            [*command, *requirements],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=DEADLINE,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _failed(client, str(error)) from None
    if done.returncode:
        # The addresses that pip names may hold credentials.
        lines = Scrubber().scrub(done.stdout, len(done.stdout) + 1).splitlines()[-LAST_LINES:]
        raise _failed(client, "\n    ".join(["pip says:", *lines])[-MAX_SHOWN:])
    if await on_scheduler(asyncio.to_thread, getattr, site, "ENABLE_USER_SITE"):
        # Where pip may not write to the others. It may not have been there when Python started.
        users = await on_scheduler(asyncio.to_thread, site.getusersitepackages)
        await on_scheduler(asyncio.to_thread, site.addsitedir, users)
    # What Python saw in its folders before is out of date.
    await on_scheduler(asyncio.to_thread, importlib.invalidate_caches)


def not_seen(client: Client, reason: ImportError) -> NotOnScheduler:
    """Return what to say where daskscope cannot be imported though pip has installed it."""
    return NotOnScheduler(
        f"pip has installed daskscope {__version__} where the scheduler at {address_of(client)} "
        f"runs, but its process does not see it ({reason}); start the scheduler again, or install "
        "daskscope in its environment or image."
    )


def address_of(client: Client) -> str:
    """Return the address of a client's scheduler, for people."""
    return str(client.scheduler.address) if client.scheduler else ""


def _failed(client: Client, why: str) -> NotOnScheduler:
    return NotOnScheduler(
        f"daskscope {__version__} could not be installed where the scheduler at "
        f"{address_of(client)} runs; install it in its environment or image.\n  {why}"
    )
