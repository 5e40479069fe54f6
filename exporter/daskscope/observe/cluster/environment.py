"""The scheduler's environment, and how the cluster was started."""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import socket
import sys
from functools import cache
from typing import Any

from distributed.scheduler import Scheduler
from distributed.versions import get_versions

from daskscope import protocol
from daskscope.containment import contain
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

#: The name of an unknown user.
UNKNOWN_USER = "unknown"


@cache
def environment() -> protocol.Environment:
    """Return this process's environment. The first call reads files: not on an event loop."""
    return protocol.Environment(
        python=platform.python_version(),
        python_path=sys.executable or "",  # None where Python is embedded
        operating_system=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        packages=dict(_versions()),
    )


def _versions() -> list[tuple[str, str]]:
    versions = []
    for package in PACKAGES:
        try:
            version: Any = importlib.metadata.version(package)
        except Exception as error:  # it is not installed, or damaged: its metadata are missing
            contain(error)
            continue
        if isinstance(version, str):  # None if the metadata do not say it
            versions.append((package, version))
    return versions


@cache
def deployment() -> dict[str, str]:
    """Return how and where this process was started. The first call reads files."""
    return deployment_here()


def read_once() -> None:
    """Fill the caches of this module and of Dask's versions. Not on an event loop."""
    environment()
    deployment()
    get_versions()


def user() -> str:
    """Return the name of the user who runs this process, or :data:`UNKNOWN_USER`."""
    # On a JupyterHub all users may share one system account.
    of_hub = os.environ.get("JUPYTERHUB_USER")
    if of_hub:
        return of_hub[: protocol.MAX_NAME]
    try:
        return getpass.getuser()[: protocol.MAX_NAME]  # what a variable says, if there is one
    except (KeyError, OSError, ImportError):  # no such user id, as in many containers
        return UNKNOWN_USER


def host() -> str:
    """Return this machine's name."""
    return socket.gethostname()


def name_and_kind(scheduler: Scheduler) -> tuple[str, str] | None:
    """Return the cluster's name in its manager, such as a LocalCluster, and the manager's class.

    Return None until the manager has reported to the scheduler, which it does once a second, also
    after a restart, which makes Dask forget it. A cluster that was started from the command line
    has no manager.
    """
    info = scheduler.get_metadata(["cluster-manager-info"], default={}) or {}
    if not info.get("type"):
        return None
    return str(info.get("name") or ""), str(info["type"]).rsplit(".", 1)[-1]


def name_and_kind_here() -> tuple[str, str]:
    """Return name and kind of a cluster that is started here, from environment variables."""
    gateway = os.environ.get("DASK_GATEWAY_CLUSTER_NAME")
    return (gateway, "Dask Gateway") if gateway else ("", "dask scheduler")
