"""The API's document and the service hold to each other."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import typing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from daskscope import api_types, protocol
from daskscope_service.api.openapi import document
from daskscope_service.application import close_app, create_app
from daskscope_service.db.engine import upgrade_database
from daskscope_service.insight.findings.thresholds import TABLE
from daskscope_service.settings import Settings
from tests.patience import START_PATIENCE, stretched
from tests.service.beats import full_beat, post
from tests.service_process import ServiceProcess

ROOT = Path(__file__).parents[2]

#: What needs no token.
OPEN = {
    "/healthz",
    "/readyz",
    "/api/v1/openapi.json",
    "/api/v1/login/device",
    "/api/v1/login/token",
}


@dataclasses.dataclass(frozen=True)
class Described:
    document: dict[str, Any]
    routes: set[str]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Described:
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"))
    upgrade_database(settings)
    app = create_app(settings)
    routes = {
        f"{method} {rule.rule.replace('<', '{').replace('>', '}')}"
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    made = document(app)
    close_app(app)
    return Described(made, routes)


def operations(described: Described) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in described.document["paths"].items()
        for method, operation in methods.items()
    }


def test_the_document_has_every_route_for_programs_and_no_other(described: Described) -> None:
    programs = ("/api/", "/v1/", "/healthz", "/readyz")
    routes = {route for route in described.routes if route.split(" ")[1].startswith(programs)}
    assert len(routes) > 15
    assert set(operations(described)) == routes


def test_every_operation_says_what_it_does_and_who_may(described: Described) -> None:
    ids = [operation["operationId"] for operation in operations(described).values()]
    assert len(ids) == len(set(ids))
    for name, operation in operations(described).items():
        assert operation["summary"].endswith("."), name
        assert ("security" in operation) == (name.split(" ")[1] not in OPEN), name
        for parameter in operation["parameters"]:
            assert parameter["in"] == "path" or parameter["description"], name


def test_every_reference_of_the_document_leads_somewhere(described: Described) -> None:
    def references(value: Any) -> typing.Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for inner in value.values():
                yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    found = set(references(described.document))
    assert found
    for reference in found:
        place = described.document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


TYPES = {
    name: kind
    for name, kind in vars(api_types).items()
    if typing.is_typeddict(kind) and not name.startswith("_")
}


@pytest.mark.parametrize("name", sorted(TYPES))
def test_fields_that_are_times_are_called_so_and_no_others(name: str) -> None:
    for field, kind in typing.get_type_hints(TYPES[name]).items():
        is_time = datetime in (kind, *typing.get_args(kind))
        assert is_time == protocol.is_time(field), f"{name}.{field}"


#: What the answers leave out of what clusters send: keys that stand in the address, what a status
#: is made of, and columns that they have unpacked.
LEFT_OUT = {
    ("Cluster", "workspace"),
    ("TaskGroup", "computation"),
    ("Failure", "computation"),
    ("Cluster", "in_client"),
    ("TaskStream", "columns"),
}
#: What is told of a computation, and not by its cluster alone.
MORE_STATES = {("Computation", "status")}


@pytest.mark.parametrize("name", sorted(set(TYPES) & set(vars(protocol))))
def test_what_clusters_send_is_told_by_the_same_names_and_types(name: str) -> None:
    told = typing.get_type_hints(TYPES[name])
    if name == "Profile":
        told = typing.get_type_hints(api_types.ProfileDetail)
    for field, kind in typing.get_type_hints(getattr(protocol, name)).items():
        if (name, field) in LEFT_OUT:
            continue
        assert field in told, f"{name}.{field} is not in the answers"
        if (name, field) not in MORE_STATES:
            assert shape(told[field]) == shape(kind), f"{name}.{field}"


def shape(kind: Any) -> str:
    """Return a type as text, alike for what is alike on the wire."""
    text = str(kind) if typing.get_args(kind) else kind.__name__
    for old, new in (
        (r"daskscope\.(protocol|api_types|api_rows)\.", ""),
        (r"datetime(\.datetime)?", "float"),
        (r"tuple\[(.*), \.\.\.\]", r"list[\1]"),
        (r"^typing\.Optional\[(.*)\]$", r"\1 | None"),
    ):
        text = re.sub(old, new, text)
    return text


def test_thresholds_have_the_bounds_by_which_they_are_checked(described: Described) -> None:
    own = described.document["components"]["schemas"]["SentOwnThresholds"]["properties"]
    assert own == {
        one.name: {"type": "number", "minimum": one.least, "maximum": one.most} for one in TABLE
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_whatever_is_asked_the_service_does_as_the_document_says(tmp_path: Path) -> None:
    """schemathesis, with all its checks: the same requests each time, some five thousand."""
    networks = ("127.0.0.0/8",)  # that of the one target that may be valid
    with ServiceProcess(tmp_path / "data", notify_networks=networks) as service:
        _ask_for_whatever(service, tmp_path)


#: Schemathesis' own settings. A heartbeat with a bad row is accepted without that row, and says so
#: (test_heartbeats.py); one that is too large is refused as too large.
SETTINGS = """
[[operations]]
include-path = "/api/v1/heartbeats"
[operations.checks.negative_data_rejection]
expected-statuses = ["2xx", "400", "403", "413", "415", "429", "5xx"]
"""


def _ask_for_whatever(local_service: ServiceProcess, tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    workspace = "openapi"
    scopes: Any = ("ingest", "read", "admin")
    token = local_service.token(scopes, workspace)
    beat = full_beat()
    assert post(local_service.url, token, beat).ok
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run"),
        f"{local_service.url}/api/v1/openapi.json",
        *("--header", f"Authorization: Bearer {token}"),
        *("--checks", "all", "--phases", "coverage,fuzzing", "--max-examples", "5"),
        # Which form is right depends on a code that only the answer before has: test_login.py.
        *("--exclude-path-regex", "/api/v1/login/"),
        # It would revoke the token that all of these show.
        *("--exclude-operation-id", "tokens_revoke_tokens"),
        *("--generation-deterministic", "--continue-on-failure", "--no-color"),
    ]
    environment = {
        "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(ROOT)]),
        "SCHEMATHESIS_HOOKS": "tests.service.api_checks",
        "TEST_WORKSPACE": workspace,
        "TEST_CLUSTER": beat.cluster.id,
        "TEST_DATA_DIR": str(local_service.data_dir),
        "TEST_DATABASE_URL": local_service.database_url,
    }
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=stretched(280),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[0-9]{4} generated", done.stdout), done.stdout


def test_many_may_ask_for_the_first_time_at_once(tmp_path: Path) -> None:
    # What msgspec learns of a type, two threads must not learn together: that ended the process.
    program = Path(__file__).with_name("first_answers.py")
    done = subprocess.run(
        [sys.executable, program, tmp_path],
        capture_output=True,
        text=True,
        timeout=START_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("types\n")
