"""How and where a cluster was started, as far as the environment tells."""

from __future__ import annotations

import threading

import pytest
from distributed import Client

from daskscope import protocol
from daskscope.observe import environment
from daskscope.observe.environment import deployment_of
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.dask_process import scheduler_process
from tests.exporter.recorder import Recorder

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "dask-scheduler-0"}


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, {}),
        ({"DASK_GATEWAY_CLUSTER_NAME": "prod.1a2b"}, {"gateway.cluster.name": "prod.1a2b"}),
        (
            {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "dask", "SLURM_JOB_PARTITION": "gpu"},
            {"slurm.job.id": "4711", "slurm.job.name": "dask", "slurm.partition.name": "gpu"},
        ),
        (
            {"PBS_JOBID": "1.head", "PBS_QUEUE": "q"},
            {"pbs.job.id": "1.head", "pbs.queue.name": "q"},
        ),
        ({"LSB_JOBID": "8", "LSB_QUEUE": "short"}, {"lsf.job.id": "8", "lsf.queue.name": "short"}),
        ({"JOB_ID": "9", "SGE_ROOT": "/opt/sge"}, {"sge.job.id": "9"}),
        (POD, {"k8s.pod.name": "dask-scheduler-0"}),
        (
            {**POD, "POD_NAME": "scheduler", "POD_NAMESPACE": "team", "NODE_NAME": "n1"},
            {"k8s.pod.name": "scheduler", "k8s.namespace.name": "team", "k8s.node.name": "n1"},
        ),
        ({"JUPYTERHUB_USER": "ada"}, {"jupyterhub.user.name": "ada"}),
    ],
)
def test_the_environment_tells_where_a_cluster_runs(
    variables: dict[str, str], told: dict[str, str]
) -> None:
    assert deployment_of(variables) == told


def test_common_names_count_only_where_their_system_is() -> None:
    assert deployment_of({"JOB_ID": "9", "QUEUE": "q", "HOSTNAME": "laptop"}) == {}


def test_kubernetes_tells_the_namespace_in_a_file() -> None:
    assert deployment_of(POD, "team")["k8s.namespace.name"] == "team"
    assert deployment_of({}, "team") == {}


def test_names_are_cut_to_what_the_wire_allows() -> None:
    told = deployment_of({"SLURM_JOB_NAME": "x" * 1_000})
    assert told == {"slurm.job.name": "x" * protocol.MAX_NAME}


def test_on_a_hub_the_user_is_the_hubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    assert environment.user() == "ada"


def test_a_scheduler_tells_how_it_was_started_and_nothing_else_of_its_environment(
    recorder: Recorder,
) -> None:
    with scheduler_process(
        *("--preload", "daskscope", "--daskscope-endpoint", recorder.url),
        *("--daskscope-interval", "100ms"),
        DASK_DASKSCOPE__TOKEN=TOKEN,
        DASK_GATEWAY_CLUSTER_NAME="prod.1a2b",
        SLURM_JOB_ID="4711",
        SLURM_SUBMIT_DIR="/home/ada/secret-project",
        **POD,
    ) as scheduler:
        with Client(scheduler.address, timeout=30):
            beat = recorder.wait_for(lambda: next(iter(recorder.beats), None), "a beat")
    assert beat.cluster.deployment == {
        "gateway.cluster.name": "prod.1a2b",
        "slurm.job.id": "4711",
        "k8s.pod.name": "dask-scheduler-0",
    }
    assert (beat.cluster.name, beat.cluster.kind) == ("prod.1a2b", "Dask Gateway")
    assert b"secret-project" not in recorder.bytes


def test_the_environment_is_not_read_on_the_event_loop(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by: set[int] = set()

    def version(package: str) -> str:
        read_by.add(threading.get_ident())
        return "1"

    # The scheduler is in this process.
    monkeypatch.setattr("importlib.metadata.version", version)
    environment.environment.cache_clear()
    try:
        register()
        beat = recorder.wait_for(lambda: next(iter(recorder.beats), None), "a beat")
    finally:
        environment.environment.cache_clear()
    assert beat.cluster.environment.packages["dask"] == "1"
    assert read_by
    assert client.run_on_scheduler(threading.get_ident) not in read_by
