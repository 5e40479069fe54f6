"""A service's findings go through a real collector into InfluxDB, a panel and an alert."""

from __future__ import annotations

import json
import time
from pathlib import Path

from daskscope import names
from grafana.boards import fleet
from grafana.rules import RULES
from tests.patience import wait_until
from tests.service.test_finding_events import CLUSTER, send_sick_and_healthy
from tests.service_process import ServiceProcess
from tests.stack.alerting import firing
from tests.stack.asking import Shown, ask_target, choose, rows
from tests.stack.collector import Collector, into
from tests.stack.influxdb import InfluxDB, Major
from tests.stack.test_telemetry import attributes_of

#: The computation of the test has no price.
_ABSENT = {names.FINDING_COST, names.FINDING_CURRENCY}


def test_a_finding_is_in_the_database_in_a_panel_and_in_an_alert(
    major: Major, influxd: Path, otelcol: Path, tmp_path: Path
) -> None:
    with (
        InfluxDB(major, influxd, tmp_path / "influxdb") as database,
        Collector(
            otelcol,
            tmp_path / "collector",
            ["base.yaml", into(database)],
            {**database.for_collector},
        ) as collector,
        ServiceProcess(tmp_path / "data", quick=True, otlp_endpoint=collector.url) as service,
    ):
        began = time.time()
        send_sick_and_healthy(service, service.token(["ingest"]))
        query = f"""SELECT * FROM "logs" WHERE "event.name" = '{names.LOG_FINDING.name}'"""
        wait_until(lambda: database.rows(query), seconds=120)
        found = {json.loads(row["attributes"])[names.FINDING_RULE]: row
                 for row in database.rows(query)}  # fmt: skip
        row = found["tiny-tasks"]
        assert row[names.CLUSTER_ID] == CLUSTER
        assert {*names.LOG_FINDING.attributes} - _ABSENT <= attributes_of(row)

        (rule,) = (one for one in RULES if one.uid == "cause-found")
        assert firing(rule, database, time.time() + 1) == {CLUSTER}
        shown = Shown(began - 60, time.time() + 60)
        values, _ = choose(database, fleet.BOARD, shown)
        (panel,) = (one for one in fleet.BOARD.panels() if one["title"] == "Findings")
        (target,) = panel["targets"]
        bodies = [one["body"] for one in rows(ask_target(database, target, shown, values))]
        assert row["body"] in bodies
