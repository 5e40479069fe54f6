"""The scheduler's environment, and how the cluster was started."""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import socket
import sys
from functools import cache

from distributed.scheduler import Scheduler
from distributed.versions import get_versions

from daskscope import protocol
from daskscope.deployment import deployment_here

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

#: The user where nobody said who it is.
UNKNOWN_USER = "unknown"


@cache
def environment() -> protocol.Environment:
    """Return what this process runs on. Reads files, the first time: not for an event loop."""
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


@cache
def deployment() -> dict[str, str]:
    """Return how and where this process was started. Reads files, the first time."""
    return deployment_here()


def read_once() -> None:
    """Read what this module and Dask's own remember. Not on an event loop."""
    environment()
    deployment()
    get_versions()


def user() -> str:
    """Return the name of the user who runs this process, or that it is unknown."""
    # On a hub everyone is the same user to the system.
    of_hub = os.environ.get("JUPYTERHUB_USER")
    if of_hub:
        return of_hub
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user id, as in many containers
        return UNKNOWN_USER


def host() -> str:
    """Return this machine's name."""
    return socket.gethostname()


def name_and_kind(scheduler: Scheduler) -> tuple[str, str] | None:
    """Return what its manager, such as a LocalCluster, calls the cluster, and what that is.

    None until it has reported to the scheduler, and for a while after a restart, which makes Dask
    forget: a manager reports once a second. One started from the command line has none.
    """
    info = scheduler.get_metadata(["cluster-manager-info"], default={}) or {}
    if not info.get("type"):
        return None
    return str(info.get("name") or ""), str(info["type"]).rsplit(".", 1)[-1]


def name_and_kind_here() -> tuple[str, str]:
    """Return what the environment calls a cluster that is started here, and what starts it."""
    gateway = os.environ.get("DASK_GATEWAY_CLUSTER_NAME")
    return (gateway, "Dask Gateway") if gateway else ("", "dask scheduler")
