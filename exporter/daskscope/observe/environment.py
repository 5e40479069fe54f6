"""What the scheduler runs on, and how the cluster was started."""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import socket
import sys

from distributed.scheduler import Scheduler

from daskscope import protocol

#: The packages whose versions explain most differences between two runs.
PACKAGES = (
    "dask",
    "distributed",
    "daskscope",
    "msgpack",
    "cloudpickle",
    "tornado",
    "toolz",
    "numpy",
    "pandas",
    "pyarrow",
    "lz4",
)


def environment() -> protocol.Environment:
    """Return what this process runs on."""
    return protocol.Environment(
        python=platform.python_version(),
        python_path=sys.executable,
        operating_system=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        packages=dict(_versions()),
    )


def _versions() -> list[tuple[str, str]]:
    versions = []
    for package in PACKAGES:
        try:
            versions.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def user() -> str:
    """Return the name of the user who runs this process, as far as it is known."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user id, as in many containers
        return os.environ.get("JUPYTERHUB_USER", "unknown")


def host() -> str:
    """Return this machine's name."""
    return socket.gethostname()


def name_and_kind(scheduler: Scheduler) -> tuple[str, str]:
    """Return what Dask calls the cluster, and what started it.

    A client's cluster object tells the scheduler about itself once a second; one started from the
    command line tells nothing.
    """
    info = scheduler.get_metadata(["cluster-manager-info"], default={}) or {}
    if info.get("type"):
        return str(info.get("name") or ""), str(info["type"]).rsplit(".", 1)[-1]
    gateway = os.environ.get("DASK_GATEWAY_CLUSTER_NAME")
    if gateway:
        return gateway, "Dask Gateway"
    return "", "dask scheduler"
