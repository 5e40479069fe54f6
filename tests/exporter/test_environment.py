"""How and where a cluster was started, as far as the environment tells."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dask.config
import pytest
from distributed import Client, LocalCluster
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import daskscope
from daskscope import names, protocol
from daskscope.deployment import deployment_of
from daskscope.observe.cluster import environment
from daskscope.observe.cluster.environment import host
from daskscope.pipeline import pipeline_of
from daskscope.scrubbing import SCRUBBED
from tests import forked
from tests.exporter import counted_preload
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.dask_process import scheduler_process
from tests.exporter.recorder import Recorder
from tests.patience import START_PATIENCE

pytestmark = pytest.mark.contract

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
        ({"LSB_JOBNAME": "fit.sh --key s3cr3t"}, {"lsf.job.name": "fit.sh"}),
        ({"JOB_ID": "9", "SGE_ROOT": "/opt/sge"}, {"sge.job.id": "9"}),
        (POD, {"k8s.pod.name": "dask-scheduler-0"}),
        (
            {**POD, "POD_NAME": "scheduler", "POD_NAMESPACE": "team", "NODE_NAME": "n1"},
            {"k8s.pod.name": "scheduler", "k8s.namespace.name": "team", "k8s.node.name": "n1"},
        ),
        ({"OAR_JOB_ID": "12"}, {"oar.job.id": "12"}),
        ({"SLURM_JOB_END_TIME": "1795900000"}, {"slurm.job.end": "2026-11-28T21:06:40Z"}),
        ({"SLURM_JOB_END_TIME": "soon"}, {}),
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


def test_htcondor_tells_the_job_in_a_file() -> None:
    told = 'MyType = "Job"\nClusterId = 12\nGlobalJobId = "head#9.9"\nProcId = 3\n'
    assert deployment_of({}, condor_job=told) == {"htcondor.job.id": "12.3"}
    assert deployment_of({}, condor_job="ClusterId = 12\n") == {}


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
        with Client(scheduler.address, timeout=START_PATIENCE):
            beat = recorder.wait_for(lambda: next(iter(recorder.beats), None), "a beat")
    assert beat.cluster.deployment == {
        "gateway.cluster.name": "prod.1a2b",
        "slurm.job.id": "4711",
        "k8s.pod.name": "dask-scheduler-0",
    }
    assert (beat.cluster.name, beat.cluster.kind) == ("prod.1a2b", "Dask Gateway")
    assert b"secret-project" not in recorder.bytes


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        (
            {
                "AIRFLOW_CTX_DAG_ID": "nightly",
                "AIRFLOW_CTX_TASK_ID": "load",
                "AIRFLOW_CTX_DAG_RUN_ID": "scheduled__2026-11-29",
                "AIRFLOW_CTX_TRY_NUMBER": "2",
                "AIRFLOW_CONN_LAKE": "s3://key:secret@lake",
            },
            {
                "airflow.dag.id": "nightly",
                "airflow.task.id": "load",
                "airflow.run.id": "scheduled__2026-11-29",
                "airflow.try.number": "2",
            },
        ),
        (
            {"PREFECT__FLOW_ENTRYPOINT": "flows/etl.py:nightly", "PREFECT__FLOW_RUN_ID": "8f1e"},
            {"prefect.flow.name": "nightly", "prefect.run.id": "8f1e"},
        ),
        (
            {"DAGSTER_RUN_JOB_NAME": "etl", "DAGSTER_RUN_STEP_KEY": "clean"},
            {"dagster.job.name": "etl", "dagster.step.key": "clean"},
        ),
        (
            {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "3"},
            {"slurm.array.job.id": "77", "slurm.array.task.id": "3"},
        ),
        (
            {
                "GITHUB_ACTIONS": "true",
                "GITHUB_REPOSITORY": "team/etl",
                "GITHUB_WORKFLOW": "test",
                "GITHUB_JOB": "slow",
                "GITHUB_RUN_ID": "17",
                "GITHUB_SHA": "9fceb02",
                "GITHUB_TOKEN": "ghs_1",
            },
            {
                "github.repository.name": "team/etl",
                "github.workflow.name": "test",
                "github.job.name": "slow",
                "github.run.id": "17",
                "github.commit.id": "9fceb02",
            },
        ),
        ({"GITHUB_WORKFLOW": "test", "CI_JOB_NAME": "mine"}, {}),
        (
            {
                "GITLAB_CI": "true",
                "CI_PROJECT_PATH": "team/etl",
                "CI_JOB_NAME": "slow",
                "CI_PIPELINE_ID": "17",
                "CI_JOB_ID": "18",
                "CI_COMMIT_SHA": "9fceb02",
                "CI_JOB_TOKEN": "glcbt-1",
            },
            {
                "gitlab.project.name": "team/etl",
                "gitlab.job.name": "slow",
                "gitlab.pipeline.id": "17",
                "gitlab.job.id": "18",
                "gitlab.commit.id": "9fceb02",
            },
        ),
        ({"AIRFLOW_CTX_DAG_ID": "x" * 1_000}, {"airflow.dag.id": "x" * 300}),
    ],
)
def test_the_environment_tells_what_a_program_is_scheduled_by(
    variables: dict[str, str], told: dict[str, str]
) -> None:
    assert pipeline_of(variables) == told


def test_a_client_tells_in_which_pipeline_it_registered(
    register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "nightly")
    monkeypatch.setenv("AIRFLOW_CTX_TASK_ID", "password=hunter2x")
    monkeypatch.setenv("AIRFLOW_CTX_DAG_OWNER", "ada-the-owner")
    register()
    beat = recorder.wait_for(lambda: next(iter(recorder.beats), None), "a beat")
    assert beat.cluster.deployment["airflow.dag.id"] == "nightly"
    assert beat.cluster.deployment["airflow.task.id"] == f"password={SCRUBBED}"
    assert b"ada-the-owner" not in recorder.bytes


def is_called(name: str, recorder: Recorder, path: str, request: Any) -> bool:
    """Whether the cluster is called so in the last request of one signal."""
    bodies = [request.body for request in list(recorder.requests) if request.path == path]
    if not bodies:
        return False
    (resource,) = getattr(request.FromString(bodies[-1]), request.DESCRIPTOR.fields[0].name)
    told = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    return bool(told[names.CLUSTER_NAME] == name)


@pytest.mark.parametrize(
    ("given", "variables", "how", "name"),
    [
        ("", {}, "file", "train_model.py"),
        ("", {}, "module", "train_model"),
        ("", {"JPY_SESSION_NAME": "/home/ada/Sales.ipynb"}, "file", "Sales.ipynb"),
        ("", {"AIRFLOW_CTX_DAG_ID": "nightly-etl"}, "file", "nightly-etl"),
        ("", {"PREFECT__FLOW_ENTRYPOINT": "flows/etl.py:nightly"}, "file", "nightly"),
        ("", {}, "text", f"ada on {host()}"),
        ("name='0123456789abcdef0123456789abcdef'", {}, "text", f"ada on {host()}"),
        ("", {"SLURM_JOB_NAME": "fit-42"}, "text", "fit-42"),
        ("", {"SLURM_JOB_NAME": "fit the model"}, "text", "fit the model"),
        ("", {"LSB_JOBNAME": "/jobs/fit.sh --key s3cr3t"}, "text", "fit.sh"),
        ("", {"AIRFLOW_CTX_DAG_ID": "password=hunter2x"}, "file", f"password={SCRUBBED}"),
        ("name='by-dask'", {}, "file", "by-dask"),
        ("name='prod.0123456789abcdef0123456789abcdef'", {}, "file", "train_model.py"),
        ("name='20261129'", {}, "file", "20261129"),
    ],
    ids=[
        "script",
        "module",
        "notebook",
        "flow",
        "flow of Prefect",
        "nothing",
        "bare number",
        "batch job",
        "words",
        "command line",
        "secret",
        "named",
        "of Dask Gateway on Kubernetes",
        "date",
    ],
)
def test_a_cluster_that_nobody_named_has_the_name_of_its_program(
    recorder: Recorder, tmp_path: Path, given: str, variables: dict[str, str], how: str, name: str
) -> None:
    text = (
        "from distributed import Client, LocalCluster\n"
        "import daskscope\n"
        f"cluster = LocalCluster(n_workers=0, processes=False, dashboard_address=':0', {given})\n"
        "with cluster, Client(cluster) as client:\n"
        "    daskscope.register(client)\n"
    )
    tmp_path.joinpath("train_model.py").write_text(text)
    called = {"file": ["train_model.py"], "module": ["-m", "train_model"], "text": ["-c", text]}
    done = forked.run(
        called[how],
        os.environ
        | {"DASK_DASKSCOPE__ENDPOINT": recorder.url, "DASK_DASKSCOPE__TOKEN": TOKEN}
        | {"LOGNAME": "ada"}
        | variables
        | counted_preload.beside(tmp_path / "differs"),
        timeout=START_PATIENCE,
        program="python",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert {beat.cluster.name for beat in recorder.beats} == {name}
    counted_preload.assert_equal(tmp_path / "differs")


def test_a_cluster_goes_by_the_name_that_its_manager_tells_later_and_keeps_it(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    preload = {
        "distributed.scheduler.preload": ["daskscope"],
        "daskscope.endpoint": recorder.url,
        "daskscope.token": TOKEN,
        "daskscope.interval": "100ms",
    }
    with (
        dask.config.set(preload),
        # It tells its name when it has started, and then not again for an hour.
        LocalCluster(
            name="ada's", n_workers=1, dashboard_address=":0", scheduler_sync_interval=3600
        ) as cluster,
        Client(cluster) as client,
    ):
        recorder.wait_for(
            lambda: any(beat.cluster.name == "ada's" for beat in recorder.beats), "the name"
        )
        client.submit(len, ()).result()
        for path, request in (
            ("/v1/metrics", ExportMetricsServiceRequest),
            ("/v1/traces", ExportTraceServiceRequest),
            ("/v1/logs", ExportLogsServiceRequest),
        ):
            recorder.wait_for(partial(is_called, "ada's", recorder, path, request), path)
        client.restart()
        last = max(beat.seq for beat in recorder.beats)
        # Dask has forgotten the name.
        recorder.wait_for(
            lambda: sum(beat.seq > last for beat in recorder.beats) > 3, "beats after the restart"
        )
    beats = sorted(recorder.beats, key=lambda beat: beat.seq)
    told = [(beat.cluster.name, beat.cluster.kind) for beat in beats]
    assert told[0] != ("ada's", "LocalCluster"), "this test needs a name that comes late"
    assert set(told[told.index(("ada's", "LocalCluster")) :]) == {("ada's", "LocalCluster")}


# As each system sets them, with what of them is nobody's business.
@pytest.mark.parametrize(
    ("variables", "told"),
    [
        (
            {
                "SLURM_JOB_ID": "4711",
                "SLURM_JOB_NAME": "dask-scheduler",
                "SLURM_JOB_PARTITION": "gpu",
                "SLURM_CLUSTER_NAME": "hal",
                "SLURM_SUBMIT_DIR": "/home/ada/secret-project",
                "SLURM_JOB_ACCOUNT": "secret-project",
            },
            {
                "slurm.job.id": "4711",
                "slurm.job.name": "dask-scheduler",
                "slurm.partition.name": "gpu",
                "slurm.cluster.name": "hal",
            },
        ),
        (
            {
                "PBS_JOBID": "1234.head",
                "PBS_JOBNAME": "dask-scheduler",
                "PBS_QUEUE": "workq",
                "PBS_O_WORKDIR": "/home/ada/secret-project",
            },
            {
                "pbs.job.id": "1234.head",
                "pbs.job.name": "dask-scheduler",
                "pbs.queue.name": "workq",
            },
        ),
        (
            {
                "LSB_JOBID": "88",
                "LSB_JOBNAME": "dask-scheduler",
                "LSB_QUEUE": "short",
                "LSB_PROJECT_NAME": "secret-project",
                "LS_SUBCWD": "/home/ada/secret-project",
            },
            {"lsf.job.id": "88", "lsf.job.name": "dask-scheduler", "lsf.queue.name": "short"},
        ),
    ],
    ids=["Slurm", "PBS", "LSF"],
)
def test_a_scheduler_in_a_batch_job_tells_which(
    recorder: Recorder, variables: dict[str, str], told: dict[str, str]
) -> None:
    with scheduler_process(
        *("--preload", "daskscope", "--daskscope-endpoint", recorder.url),
        *("--daskscope-interval", "100ms"),
        DASK_DASKSCOPE__TOKEN=TOKEN,
        **variables,
    ) as scheduler:
        beat = recorder.wait_for(lambda: next(iter(recorder.beats), None), "a beat")
        scheduler.stop()
    assert beat.cluster.deployment == told
    assert beat.cluster.kind == "dask scheduler"
    assert b"secret-project" not in recorder.bytes


def _what_runs_here() -> dict[str, Any]:
    """Return what this process runs on, asked of others than the one that is tested."""
    system = os.uname()
    return {
        "python": sys.version.split()[0],
        "python_path": sys.executable,
        "operating_system": f"{system.sysname} {system.release}",
        "architecture": system.machine,
    }


def test_what_is_damaged_or_missing_in_an_environment_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toolz-1.0.dist-info").mkdir()  # an installation that broke off
    (tmp_path / "lz4-1.0.dist-info").mkdir()
    (tmp_path / "lz4-1.0.dist-info" / "METADATA").write_text("Name: lz4\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "executable", None)  # as where Python is embedded
    found = environment.environment.__wrapped__()
    assert found.packages["dask"] == version("dask")
    assert not {"toolz", "lz4"} & found.packages.keys()
    assert found.python_path == ""


def test_a_scheduler_tells_what_it_runs_on(recorder: Recorder) -> None:
    with (
        scheduler_process() as scheduler,
        Client(scheduler.address, timeout=START_PATIENCE) as client,
    ):
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        beat = recorder.wait_for(lambda: next(iter(recorder.beats), None), "a beat")
        there = client.run_on_scheduler(_what_runs_here)
        there_by_dask = client.get_versions()["scheduler"]["packages"]
    told = asdict(beat.cluster.environment)
    packages = told.pop("packages")
    assert told == there
    assert {name: packages[name] for name in ("dask", "distributed")} == {
        name: there_by_dask[name] for name in ("dask", "distributed")
    }
    assert beat.cluster.host == os.uname().nodename


def test_a_local_cluster_has_its_objects_name_and_kind(recorder: Recorder) -> None:
    with (
        LocalCluster(name="wednesday", n_workers=0, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        # It tells the scheduler about itself, once a second.
        recorder.wait_for(
            lambda: (
                (recorder.beats[-1].cluster.name, recorder.beats[-1].cluster.kind)
                == ("wednesday", "LocalCluster")
            ),
            "its name and kind",
        )


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
