"""What Grafana reads at its start: where the data and the dashboards are."""

from __future__ import annotations

from typing import Any

#: Names, and the numbers by which dashboards and alerts know them.
METRICS_UID = "daskscope"
SPANS_UID = "daskscope-spans"
FOLDER = "Dask"
#: Where the folder ``grafana/dashboards`` is to be for Grafana.
DASHBOARDS = "/etc/grafana/daskscope"


def datasources() -> dict[str, Any]:
    """Return the two databases, read in InfluxQL; InfluxDB 1.8 and 2 understand the same header.

    Grafana takes the values from its own environment.
    """
    return {
        "apiVersion": 1,
        "datasources": [
            _influxdb("daskscope", METRICS_UID, "${DASKSCOPE_INFLUXDB_DATABASE}"),
            _influxdb("daskscope spans", SPANS_UID, "${DASKSCOPE_INFLUXDB_SPANS_DATABASE}"),
        ],
    }


def dashboards() -> dict[str, Any]:
    """Return where the dashboards lie. They may be changed in Grafana, but not saved there."""
    return {
        "apiVersion": 1,
        "providers": [
            {
                "name": "daskscope",
                "folder": FOLDER,
                "type": "file",
                "disableDeletion": True,
                "allowUiUpdates": False,
                "options": {"path": DASHBOARDS},
            }
        ],
    }


def _influxdb(name: str, uid: str, database: str) -> dict[str, Any]:
    return {
        "name": name,
        "uid": uid,
        "type": "influxdb",
        "access": "proxy",
        "url": "${DASKSCOPE_INFLUXDB_URL}",
        "jsonData": {
            "dbName": database,
            # A choice of thousands of clusters is longer than an address may be.
            "httpMode": "POST",
            "timeInterval": "10s",
            "httpHeaderName1": "Authorization",
        },
        "secureJsonData": {"httpHeaderValue1": "Token ${DASKSCOPE_INFLUXDB_TOKEN}"},
    }
