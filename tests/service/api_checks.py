"""What schemathesis gets to know of the API beyond its document: see test_openapi.py.

Loaded by schemathesis' own process, with the database in the environment.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import schemathesis
from schemathesis import GenerationMode

from daskscope.codec import code_hash
from daskscope_service.db.engine import open_database
from daskscope_service.settings import Settings
from tests.service.rows import count_rows

WORKSPACE = os.environ["TEST_WORKSPACE"]
ENGINE = open_database(
    Settings(
        data_dir=Path(os.environ["TEST_DATA_DIR"]), database_url=os.environ["TEST_DATABASE_URL"]
    )
)


#: What there is, as test_openapi.py reported it.
KNOWN = {
    "cluster_id": os.environ["TEST_CLUSTER"],
    "computation_id": "c1",
    "profile_id": "p1",
    "fingerprint": "1:abc",
}


class Stored:
    """How many rows the workspace had after the request before."""

    rows = 0


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Leave three of the thresholds: a dozen requests for each of a hundred show no more.

    That each has the bounds that the document says is tested in test_openapi.py.
    """
    own = raw_schema["components"]["schemas"]["SentOwnThresholds"]
    own["properties"] = dict(list(own["properties"].items())[:3])


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Keep to the rules between values that no schema can say, where a request is to be valid."""
    if case.method == "POST":
        Stored.rows = count_rows(ENGINE, WORKSPACE)
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE:
        return
    for name in case.path_parameters or {}:
        case.path_parameters[name] = KNOWN.get(name, case.path_parameters[name])
    query = case.query or {}
    query.pop("cursor", None)  # not of an answer before
    if "since" in query:
        query.pop("until", None)  # not later
    if case.path.startswith("/api/v1/policies") and case.method in ("POST", "PUT"):
        case.body |= {"name": "x", "begins": None, "ends": None, "time_zone": "UTC"}
        case.body["enabled"] = False  # else it would ask clusters to shut down meanwhile
    if case.path == "/api/v1/targets" and case.method == "POST":
        case.body["address"] = "json://127.0.0.1:9/nobody"
    if case.path == "/api/v1/commands" and case.method == "POST":
        case.body["cluster"] = KNOWN["cluster_id"]
    if case.path == "/api/v1/mutes" and case.method == "POST":
        until = datetime.now(UTC) + timedelta(days=1)
        case.body |= {"cluster": KNOWN["cluster_id"], "until_at": until.isoformat()}
        case.body.pop("job", None)  # in place of a cluster
        case.body.pop("computation", None)
    if case.path == "/api/v1/job-corrections" and case.method == "POST":
        case.body = {"job": case.body["job"], "name": "x"}  # one thing at a time
    if case.path.endswith("/correction-preview"):
        case.query = {"name": "x"}
    if case.path == "/api/v1/heartbeats":
        case.body = whole(case.body)
        for code in case.body.get("code", ()):
            code["hash"] = code_hash(
                code["file"], code["first_line"], code.get("cut", False), code["text"]
            )


def whole(value: Any) -> Any:
    """Return ``value`` with 5.0 as 5: a schema does not tell them apart, a parser may."""
    if isinstance(value, dict):
        return {name: whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**63
    return int(value) if is_whole else value


@schemathesis.check
def nothing_is_stored_of_what_is_refused(context: Any, response: Any, case: Any) -> None:
    """Hold that a request that was refused left no row."""
    if case.method == "POST" and response.status_code >= 400:
        assert count_rows(ENGINE, WORKSPACE) == Stored.rows, "it was refused, and stored"
