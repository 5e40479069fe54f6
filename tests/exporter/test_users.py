"""Who is told to have sent a computation, and where a cluster is told to be."""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter
from typing import Any, NamedTuple

import pytest
from distributed import Client, LocalCluster, worker_client
from distributed.comm.addressing import unparse_host_port
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

import daskscope
from daskscope import names
from daskscope.deployment import deployment_of
from daskscope.observe.cluster import environment
from daskscope.observe.cluster.connections import Peer, peer_of
from daskscope.observe.cluster.users import MAX_CLIENTS, Users, is_personal
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.dask_process import scheduler_process, worker_process
from tests.exporter.recorder import Recorder
from tests.patience import START_PATIENCE


def by_ada(x: int) -> int:
    return x


def by_a_task_of_ada(x: int) -> int:
    return x


def submit_from_inside(x: int) -> int:
    with worker_client() as client:
        result: int = client.submit(by_a_task_of_ada, x).result()
        return result


def by_nobody_known(x: int) -> int:
    return x


def by_bob(x: int) -> int:
    return x


def user_of(recorder: Recorder, prefix: str) -> str:
    row = recorder.wait_for(
        lambda: next(
            (r for r in recorder.computations().values() if prefix in recorder.groups(r.id)), None
        ),
        f"the computation of {prefix}",
    )
    return row.user


def test_who_did_not_register_is_not_taken_for_who_did_and_the_host_is_the_schedulers(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"endpoint": recorder.url, "token": TOKEN, "interval": "100ms"}
    monkeypatch.setattr(environment, "user", lambda: "ada")
    monkeypatch.setattr(environment, "host", lambda: "the-laptop-of-ada")
    with (
        scheduler_process(OTEL_BLRP_SCHEDULE_DELAY="100") as scheduler,
        worker_process(scheduler.address),
        Client(scheduler.address, timeout=START_PATIENCE) as client,
        Client(scheduler.address, timeout=START_PATIENCE) as other,
    ):
        daskscope.register(client, **settings)
        client.submit(by_ada, 1).result(timeout=START_PATIENCE)
        client.submit(submit_from_inside, 1).result(timeout=START_PATIENCE)
        other.submit(by_nobody_known, 1).result(timeout=START_PATIENCE)
        monkeypatch.setattr(environment, "user", lambda: "bob")
        daskscope.register(other, **settings)
        other.submit(by_bob, 1).result(timeout=START_PATIENCE)

        assert user_of(recorder, "by_ada") == "ada"
        assert user_of(recorder, "by_a_task_of_ada") == "ada"
        assert user_of(recorder, "by_nobody_known") == "unknown"
        assert user_of(recorder, "by_bob") == "bob"
        cluster = recorder.beats[-1].cluster
        assert (cluster.user, cluster.host) == ("ada", socket.gethostname())
        request = recorder.wait_for(
            lambda: next((r for r in recorder.requests if r.path == "/v1/logs"), None), "logs"
        )
        (sent,) = ExportLogsServiceRequest.FromString(request.body).resource_logs
        told = {pair.key: pair.value.string_value for pair in sent.resource.attributes}
        assert told[names.HOST_NAME] == socket.gethostname()


def test_a_preloaded_cluster_is_its_schedulers_users_and_so_are_that_users_clients_there(
    recorder: Recorder,
) -> None:
    with (
        scheduler_process(
            *("--preload", "daskscope", "--daskscope-endpoint", recorder.url),
            *("--daskscope-interval", "100ms"),
            DASK_DASKSCOPE__TOKEN=TOKEN,
            LOGNAME="grace",
            JUPYTERHUB_USER="",
        ) as scheduler,
        worker_process(scheduler.address),
        Client(scheduler.address, timeout=START_PATIENCE) as client,
    ):
        client.submit(by_nobody_known, 1).result(timeout=START_PATIENCE)
        assert user_of(recorder, "by_nobody_known") == "grace"
        port = scheduler.address.rpartition(":")[2]
    # Other schedulers of that user on the host have other ports.
    told = {(beat.cluster.user, beat.cluster.name) for beat in recorder.beats}
    assert told == {("grace", f"grace on {socket.gethostname()}:{port}")}


def test_a_preloaded_cluster_without_a_name_is_told_from_others_by_its_job(
    recorder: Recorder,
) -> None:
    with (
        scheduler_process(
            *("--preload", "daskscope", "--daskscope-endpoint", recorder.url),
            *("--daskscope-interval", "100ms"),
            DASK_DASKSCOPE__TOKEN=TOKEN,
            LOGNAME="grace",
            JUPYTERHUB_USER="",
            SLURM_JOB_ID="4711",
            SLURM_JOB_NAME="interactive",
        ) as scheduler,
        Client(scheduler.address, timeout=START_PATIENCE),
    ):
        beat = recorder.wait_for(lambda: next(iter(recorder.beats), None), "a beat")
    assert beat.cluster.name == f"grace on {socket.gethostname()}, job 4711"


def test_another_client_in_the_process_of_the_scheduler_and_of_one_that_registered_is_its_users(
    cluster: LocalCluster, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "user", lambda: "ada")
    register()
    with Client(cluster) as other:
        other.submit(by_nobody_known, 1).result()
        assert user_of(recorder, "by_nobody_known") == "ada"


def test_what_a_task_sends_is_nobodys_while_several_have_work_running() -> None:
    drops: Counter[str] = Counter()
    users = Users(None, drops, lambda _: None)
    assert users.user_of("Client-worker-1", lambda: {"ada": 2}) == "ada"
    assert users.user_of("Client-worker-1", lambda: {"ada": 2, "bob": 1}) == "unknown"
    assert users.user_of("Client-worker-1", dict) == "unknown"
    assert not drops


def test_clients_that_are_remembered_are_bounded() -> None:
    drops: Counter[str] = Counter()
    users = Users(None, drops, lambda _: None)
    for number in range(MAX_CLIENTS + 2):
        users.client_is(f"Client-{number}", "ada", sends_code=True)
    assert users.user_of("Client-1", tuple) == "unknown"
    assert users.user_of("Client-2", tuple) == "ada"
    assert drops == {"user of a client": 2}


@pytest.mark.parametrize(
    ("peer", "user"),
    [
        (Peer("", True, os.getuid()), "grace"),
        (Peer("127.0.0.1", True, os.getuid()), "grace"),
        # Where the system does not tell: on a laptop it is the same person.
        (Peer("127.0.0.1", True, None), "grace"),
        (
            Peer("127.0.0.1", True, os.getuid() + 1),
            f"unregistered client of uid {os.getuid() + 1} on {socket.gethostname()}",
        ),
        (Peer("10.0.0.7", False, None), "unregistered client on 10.0.0.7"),
        (None, "unregistered client"),
    ],
)
def test_who_has_not_registered_with_a_preloaded_scheduler_is_not_taken_for_its_user(
    peer: Peer | None, user: str
) -> None:
    drops: Counter[str] = Counter()
    users = Users("grace", drops, lambda _: peer)
    assert users.user_of("Client-1", list) == user
    assert users.user_of("Client-worker-1", lambda: ["ada"]) == "ada"
    assert users.user_of("Client-worker-1", lambda: ["ada", "bob"]) == "unknown"
    users.client_is("Client-1", "ada", sends_code=False)
    assert users.user_of("Client-1", list) == "ada"
    assert Users("grace", drops, lambda _: peer, personal=True).user_of("Client-2", list) == "grace"


@pytest.mark.parametrize(
    ("variables", "personal"),
    [
        ({"SLURM_JOB_ID": "7"}, True),
        ({"JUPYTERHUB_USER": "ada"}, True),
        ({"DASK_GATEWAY_CLUSTER_NAME": "c1"}, True),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAME": "scheduler"}, False),
        ({}, False),
    ],
)
def test_a_scheduler_in_a_batch_job_or_of_a_hub_or_gateway_is_one_users(
    variables: dict[str, str], personal: bool
) -> None:
    assert is_personal(deployment_of(variables)) is personal


class _Comm(NamedTuple):
    local_address: str
    peer_address: str


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who holds a socket")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_system_says_who_holds_the_other_end_of_a_connection(host: str) -> None:
    def connection() -> tuple[_Comm, list[socket.socket]]:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener, client = (socket.socket(family) for _ in range(2))
        listener.bind((host, 0))
        listener.listen()
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        names = (accepted.getsockname(), accepted.getpeername())
        texts = (unparse_host_port(*name[:2]) for name in names)
        return _Comm(*(f"tcp://{text}" for text in texts)), [listener, client, accepted]

    comm, sockets = connection()
    assert peer_of(comm) == Peer(host, True, os.getuid())
    for one in sockets:
        one.close()
    # As from another machine: this one has no such socket.
    far = "10.9.8.7" if host == "127.0.0.1" else "2001:db8::7"
    elsewhere = comm._replace(peer_address=f"tcp://{unparse_host_port(far, 40_000)}")
    assert peer_of(elsewhere) == Peer(far, False, None)
    assert peer_of(_Comm("inproc://1", "inproc://2")) == Peer("", True, os.getuid())
    assert peer_of(_Comm("tcp://", "tcp://")) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who holds a socket")
@pytest.mark.parametrize(
    ("family", "wildcard", "far", "own"),
    [
        (socket.AF_INET, "0.0.0.0", "203.0.113.7", "10.0.0.1"),
        (socket.AF_INET6, "::", "2001:db8::7", "2001:db8::1"),
    ],
)
def test_what_listens_at_the_port_of_a_client_elsewhere_is_not_that_client(
    family: socket.AddressFamily, wildcard: str, far: str, own: str
) -> None:
    with socket.socket(family) as listener:
        listener.bind((wildcard, 0))
        listener.listen()
        port = listener.getsockname()[1]
        here, there = (f"tcp://{unparse_host_port(*end)}" for end in ((own, 8786), (far, port)))
        assert peer_of(_Comm(here, there)) == Peer(far, False, None)


def test_a_client_at_a_link_local_address_is_a_peer() -> None:
    comm = _Comm("tcp://[fe80::2%eth0]:8786", "tcp://[fe80::1%eth0]:40000")
    assert peer_of(comm) == Peer("fe80::1%eth0", False, None)
