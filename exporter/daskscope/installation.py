"""Installs this copy of daskscope in a scheduler's environment, with pip in a separate process.

The copy is a wheel made of the installed package, so no package index is needed for it:
https://packaging.python.org/specifications/binary-distribution-format.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import importlib
import importlib.metadata
import io
import site
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from distributed import Client

from daskscope.errors import NotOnScheduler
from daskscope.scrubbing import Scrubber
from daskscope.version import __version__

#: The name of the wheel.
NAME = f"daskscope-{__version__}-py3-none-any.whl"

_INFO = f"daskscope-{__version__}.dist-info"
_WHEEL = "Wheel-Version: 1.0\nGenerator: daskscope\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
#: The time of all files in the archive, so that the same package makes the same wheel.
_TIME = (2020, 1, 1, 0, 0, 0)

#: Seconds that pip may take.
DEADLINE = 600.0
#: Lines and characters of pip's output that are shown if it fails.
LAST_LINES = 15
MAX_SHOWN = 2_000

#: Packages that the scheduler already uses: pip must not change their versions.
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

    The client sends its own files as a wheel, so pip does not look for a package of that name,
    which a stranger could have put into an index. pip does fetch daskscope's dependencies, by its
    own settings there (``PIP_INDEX_URL``, its configuration file). The scheduler's versions of Dask
    do not change. Neither its event loop nor its tasks wait. Workers need no installation.

    Raises
    ------
    NotOnScheduler
        There are no files to send, or pip failed; the message shows its last lines.
    """
    try:
        wheel = _own_wheel()
    except (LookupError, OSError) as error:
        raise _failed(client, str(error)) from None
    # Only functions of the standard library, which pickle by name: daskscope is not there yet.
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
        # Addresses in pip's output may contain credentials.
        said = done.stdout.decode("utf-8", "replace")
        lines = Scrubber().scrub(said, len(said) + 1).splitlines()[-LAST_LINES:]
        raise _failed(client, "\n    ".join(["pip says:", *lines])[-MAX_SHOWN:])
    if await on_scheduler(asyncio.to_thread, getattr, site, "ENABLE_USER_SITE"):
        # pip installs here if it may not write elsewhere. The folder may not have existed at
        # Python's start.
        users = await on_scheduler(asyncio.to_thread, site.getusersitepackages)
        await on_scheduler(asyncio.to_thread, site.addsitedir, users)
    # Python's cached listings of its folders are out of date.
    await on_scheduler(asyncio.to_thread, importlib.invalidate_caches)


def not_seen(client: Client, reason: ImportError) -> NotOnScheduler:
    """Return the error for a daskscope that pip has installed but that cannot be imported."""
    return NotOnScheduler(
        f"pip installed daskscope {__version__} in the environment of the scheduler at "
        f"{address_of(client)}, but the scheduler's process cannot import it ({reason}); "
        "restart the scheduler, or install daskscope in its environment or image."
    )


def address_of(client: Client) -> str:
    """Return the address of a client's scheduler, for messages."""
    return str(client.scheduler.address) if client.scheduler else ""


def _failed(client: Client, why: str) -> NotOnScheduler:
    return NotOnScheduler(
        f"daskscope {__version__} could not be installed in the environment of the scheduler "
        f"at {address_of(client)}; install it in that environment or image yourself.\n  {why}"
    )


def _own_wheel() -> bytes:
    """Return a wheel of the package ``daskscope``, without the service.

    Raise LookupError if the package has no files or metadata.
    """
    folder = Path(__file__).parent
    files = {
        f"daskscope/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    try:
        metadata = importlib.metadata.distribution("daskscope").read_text("METADATA")
    except importlib.metadata.PackageNotFoundError:
        metadata = None
    if not files or metadata is None:
        raise LookupError(
            "daskscope is not installed here as a package with files and metadata, so it "
            "cannot be packed into a wheel"
        )
    files[f"{_INFO}/METADATA"] = metadata.encode()
    files[f"{_INFO}/WHEEL"] = _WHEEL.encode()
    files[f"{_INFO}/RECORD"] = _record(files).encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            wheel.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def _record(files: dict[str, bytes]) -> str:
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{_INFO}/RECORD,,", ""])
