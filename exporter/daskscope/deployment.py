"""Finds how and where a process was started: batch jobs, pods, Dask Gateway, JupyterHub; and on
which type of machine.

This file is also sent to the workers, as text, for ``daskscope.worker_process``, so it uses only
the standard library. It reads identifiers only, and nothing else from the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

#: The most characters of a value: ``daskscope.protocol.MAX_NAME``, which workers may lack.
MAX_VALUE = 300

#: Each name, and the environment variables that may contain its value: the first that is set
#: counts.
_NAMES: dict[str, tuple[str, ...]] = {
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
    "oar.job.id": ("OAR_JOB_ID",),
    "jupyterhub.user.name": ("JUPYTERHUB_USER",),
    "jupyterhub.server.name": ("JUPYTERHUB_SERVER_NAME",),
}

# These variables have common names, so they count only if a variable specific to SGE is set.
_SGE: dict[str, tuple[str, ...]] = {
    "sge.job.id": ("JOB_ID",),
    "sge.job.name": ("JOB_NAME",),
    "sge.queue.name": ("QUEUE",),
}
_KUBERNETES: dict[str, tuple[str, ...]] = {
    # Values of Kubernetes' downward API, in the variables that charts and operators use. A pod's
    # host name is its own name, unless it shares the node's network.
    "k8s.pod.name": ("POD_NAME", "K8S_POD_NAME", "MY_POD_NAME", "HOSTNAME"),
    "k8s.namespace.name": ("POD_NAMESPACE", "K8S_NAMESPACE", "MY_POD_NAMESPACE"),
    "k8s.node.name": ("NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME"),
    "k8s.pod.uid": ("POD_UID", "K8S_POD_UID", "MY_POD_UID"),
}

#: Kubernetes writes each pod's namespace here.
_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

#: The environment variables that may contain the type of the machine: the first that is set counts.
_INSTANCE_TYPE = ("DASKSCOPE_INSTANCE_TYPE", "NODE_INSTANCE_TYPE", "INSTANCE_TYPE")
#: Where Linux has what the machine's firmware says of it.
_FIRMWARE = "/sys/class/dmi/id"
#: Makers of machines whose firmware calls the machine by its instance type.
_NAMES_TYPE = ("Amazon EC2",)

#: HTCondor sets no variable with the id of a job, but one with the file that describes the job.
_CONDOR_FILE = "_CONDOR_JOB_AD"
_CONDOR_ID = re.compile(r"^\s*(ClusterId|ProcId)\s*=\s*(\d+)\s*$", re.MULTILINE)


def deployment_here() -> dict[str, str]:
    """Return how and where this process was started. Reads files of Kubernetes and HTCondor."""
    return deployment_of(
        os.environ, _text(_NAMESPACE_FILE), _text(os.environ.get(_CONDOR_FILE) or "")
    )


def instance_type_here() -> str | None:
    """Return the type of this machine, such as ``m5.large``; None if it is not known.

    Reads environment variables and the firmware's files, and asks no server.
    """
    firmware = (_text(f"{_FIRMWARE}/{name}") or "" for name in ("sys_vendor", "product_name"))
    return instance_type_of(os.environ, *firmware)


def instance_type_of(variables: Mapping[str, str], maker: str, product: str) -> str | None:
    """Return the type of a machine by environment variables, and by what its firmware says."""
    given = next((variables[name] for name in _INSTANCE_TYPE if variables.get(name)), None)
    type_name = given or (product if maker in _NAMES_TYPE else None)
    return _sendable(type_name) if type_name else None


def deployment_of(
    variables: Mapping[str, str], namespace: str | None = None, condor_job: str | None = None
) -> dict[str, str]:
    """Return how and where a process was started, by names such as ``slurm.job.id``.

    ``variables`` are environment variables, ``namespace`` is the content of Kubernetes' file, and
    ``condor_job`` the content of HTCondor's.
    """
    known = dict(_NAMES)
    if "SGE_ROOT" in variables or "SGE_CELL" in variables:
        known.update(_SGE)
    in_kubernetes = "KUBERNETES_SERVICE_HOST" in variables
    if in_kubernetes:
        known.update(_KUBERNETES)
    values = {
        name: next((variables[key] for key in keys if variables.get(key)), None)
        for name, keys in known.items()
    }
    if job := values["lsf.job.name"]:
        # For a job without a name, LSF gives the whole command line, with its arguments.
        values["lsf.job.name"] = job.split()[0] if job.split() else None
    with suppress(ValueError, OverflowError, OSError):
        ends = datetime.fromtimestamp(int(variables.get("SLURM_JOB_END_TIME", "")), UTC)
        values["slurm.job.end"] = f"{ends:%Y-%m-%dT%H:%M:%SZ}"
    if in_kubernetes and values["k8s.namespace.name"] is None:
        values["k8s.namespace.name"] = namespace
    numbers = dict(_CONDOR_ID.findall(condor_job or ""))
    if len(numbers) == 2:
        values["htcondor.job.id"] = f"{numbers['ClusterId']}.{numbers['ProcId']}"
    return {name: _sendable(value) for name, value in values.items() if value}


def _sendable(value: str) -> str:
    # A variable may be no UTF-8: Dask closes a worker whose heartbeat has such a text.
    return value[:MAX_VALUE].encode(errors="replace").decode()


def _text(path: str) -> str | None:
    with suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        return file.read(1 << 20).strip()
    return None
