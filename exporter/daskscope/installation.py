"""Installs daskscope where a scheduler runs: this copy of it, with pip, in a process of its own."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import site
import subprocess
import sys
from typing import Any

from distributed import Client

from daskscope.client_wheel import NAME, own_wheel
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

#: Installs the wheel that it reads. Its arguments are the wheel's name, and further requirements.
_PROGRAM = """
import pathlib, subprocess, sys, tempfile
with tempfile.TemporaryDirectory() as folder:
    wheel = pathlib.Path(folder, sys.argv[1])
    wheel.write_bytes(sys.stdin.buffer.read())
    pip = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    sys.exit(subprocess.call([*pip, str(wheel), *sys.argv[2:]], stdin=subprocess.DEVNULL))
"""


async def install_on_scheduler(client: Client) -> None:
    """Install this copy of daskscope where the scheduler of ``client`` runs.

    The client sends its own files, as a wheel: pip looks for no package of that name, which a
    stranger could have put into an index. It does look for what daskscope needs, by its own
    settings there (``PIP_INDEX_URL``, its configuration file). What the scheduler runs of Dask
    stays as it is. Neither its event loop nor its tasks wait. Workers need nothing.

    Raises
    ------
    NotOnScheduler
        There are no files to send, or pip failed; the message shows its last lines.
    """
    try:
        wheel = own_wheel()
    except (LookupError, OSError) as error:
        raise _failed(client, str(error)) from None
    # All by name, functions of the standard library alone: nothing of ours is there yet.
    on_scheduler: Any = client._run_on_scheduler
    python = await on_scheduler(asyncio.to_thread, getattr, sys, "executable")
    requirements = []
    for package in _STAY:
        version = await on_scheduler(asyncio.to_thread, importlib.metadata.version, package)
        requirements.append(f"{package}=={version}")
    try:
        done = await on_scheduler(
            asyncio.to_thread,
            subprocess.run,
            [python, "-c", _PROGRAM, NAME, *requirements],
            input=wheel,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DEADLINE,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _failed(client, str(error)) from None
    if done.returncode:
        # The addresses that pip names may hold credentials.
        said = done.stdout.decode("utf-8", "replace")
        lines = Scrubber().scrub(said, len(said) + 1).splitlines()[-LAST_LINES:]
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
        f"pip installed daskscope {__version__} in the environment of the scheduler at "
        f"{address_of(client)}, but the scheduler's process cannot import it ({reason}); "
        "restart the scheduler, or install daskscope in its environment or image."
    )


def address_of(client: Client) -> str:
    """Return the address of a client's scheduler, for people."""
    return str(client.scheduler.address) if client.scheduler else ""


def _failed(client: Client, why: str) -> NotOnScheduler:
    return NotOnScheduler(
        f"daskscope {__version__} could not be installed in the environment of the scheduler "
        f"at {address_of(client)}; install it in that environment or image yourself.\n  {why}"
    )
