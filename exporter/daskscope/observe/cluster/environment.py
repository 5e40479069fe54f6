"""What the scheduler runs on, and how the cluster was started."""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import socket
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from distributed.scheduler import Scheduler
from distributed.versions import get_versions

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

#: The user where nobody said who it is.
UNKNOWN_USER = "unknown"

#: What says where a cluster was started, and the variables that say it, the first that is set.
#: Identifiers only: nothing else of the environment is read.
_DEPLOYMENT: dict[str, tuple[str, ...]] = {
    "gateway.cluster.name": ("DASK_GATEWAY_CLUSTER_NAME",),
    "slurm.job.id": ("SLURM_JOB_ID", "SLURM_JOBID"),
    "slurm.job.name": ("SLURM_JOB_NAME",),
    "slurm.partition.name": ("SLURM_JOB_PARTITION",),
    "slurm.cluster.name": ("SLURM_CLUSTER_NAME",),
    "pbs.job.id": ("PBS_JOBID",),
    "pbs.job.name": ("PBS_JOBNAME",),
    "pbs.queue.name": ("PBS_QUEUE",),
    "lsf.job.id": ("LSB_JOBID",),
    "lsf.job.name": ("LSB_JOBNAME",),
    "lsf.queue.name": ("LSB_QUEUE",),
    "jupyterhub.user.name": ("JUPYTERHUB_USER",),
    "jupyterhub.server.name": ("JUPYTERHUB_SERVER_NAME",),
}

# Their names are common ones: they count only beside a variable that none but the system sets.
_SGE: dict[str, tuple[str, ...]] = {
    "sge.job.id": ("JOB_ID",),
    "sge.job.name": ("JOB_NAME",),
    "sge.queue.name": ("QUEUE",),
}
_KUBERNETES: dict[str, tuple[str, ...]] = {
    # Of the downward API, under the names that charts and operators use. A pod's host name is its
    # own name, unless it shares the node's network.
    "k8s.pod.name": ("POD_NAME", "K8S_POD_NAME", "MY_POD_NAME", "HOSTNAME"),
    "k8s.namespace.name": ("POD_NAMESPACE", "K8S_NAMESPACE", "MY_POD_NAMESPACE"),
    "k8s.node.name": ("NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME"),
    "k8s.pod.uid": ("POD_UID", "K8S_POD_UID", "MY_POD_UID"),
}

#: Kubernetes writes each pod's namespace here.
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


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
    """Return how and where this process was started. Reads a file, the first time."""
    try:
        namespace = _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        namespace = None
    return deployment_of(os.environ, namespace)


def deployment_of(variables: Mapping[str, str], namespace: str | None = None) -> dict[str, str]:
    """Return what environment ``variables`` say of how and where a process was started.

    Jobs of batch systems, pods, Dask Gateway and JupyterHub, under names such as ``slurm.job.id``.
    ``namespace`` is what Kubernetes says in a file.
    """
    known = dict(_DEPLOYMENT)
    if "SGE_ROOT" in variables or "SGE_CELL" in variables:
        known |= _SGE
    in_kubernetes = "KUBERNETES_SERVICE_HOST" in variables
    if in_kubernetes:
        known |= _KUBERNETES
    found = {
        name: next((variables[key] for key in keys if variables.get(key)), None)
        for name, keys in known.items()
    }
    if in_kubernetes and found["k8s.namespace.name"] is None:
        found["k8s.namespace.name"] = namespace
    return {name: value[: protocol.MAX_NAME] for name, value in found.items() if value}


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
