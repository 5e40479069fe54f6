"""A real InfluxDB 1.8 or 2.9 on loopback, with the databases that the collector writes to."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, Literal, Self

import requests

from tests.ports import free_port
from tests.stack.part import Part, answers

Major = Literal[1, 2]

DATABASE = "daskscope"
SPANS_DATABASE = "daskscope_spans"
USER = "daskscope"
#: How long each is kept, as the configurations of the collector recommend.
_HOURS = {DATABASE: 90 * 24, SPANS_DATABASE: 3 * 24}

# Spans are a series each: with the defaults, InfluxDB 1 refuses the 100,001st.
_CONFIGURATION_1 = """\
reporting-disabled = true
bind-address = "127.0.0.1:{backup_port}"
[meta]
  dir = "{folder}/meta"
[data]
  dir = "{folder}/data"
  wal-dir = "{folder}/wal"
  index-version = "tsi1"
  max-values-per-tag = 0
  max-series-per-database = 0
  query-log-enabled = false
[http]
  bind-address = "127.0.0.1:{port}"
  auth-enabled = true
  log-enabled = false
"""


class InfluxDB:
    """An InfluxDB of one major version in ``folder``. Use it in a with-statement.

    ``token`` is what its API takes after ``Authorization: Token``, made anew each time.
    """

    def __init__(self, major: Major, program: Path, folder: Path) -> None:
        self.major = major
        self._folder = folder
        self._port = free_port()
        self._password = secrets.token_urlsafe(24)
        self.url = f"http://127.0.0.1:{self._port}"
        self.token = f"{USER}:{self._password}" if major == 1 else secrets.token_urlsafe(32)
        folder.mkdir(parents=True, exist_ok=True)
        self.part = Part(
            f"InfluxDB {major}",
            [program, *(self._options_1() if major == 1 else self._options_2())],
            folder / "log",
            environment={},
            ready=lambda: answers(f"{self.url}/ping"),
        )
        self._session = requests.Session()
        self._session.trust_env = False

    def __enter__(self) -> Self:
        try:
            self.part.start()
            if self.major == 1:
                self._set_up_1()
            else:
                self._set_up_2()
        except BaseException:
            self.part.stop("KILL")
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.part.stop()
        self._session.close()

    @property
    def for_collector(self) -> dict[str, str]:
        """The variables that ``collector_config/influxdb1.yaml`` and ``influxdb2.yaml`` read."""
        own = {"INFLUXDB_USERNAME": USER, "INFLUXDB_PASSWORD": self._password}
        if self.major == 2:
            own = {"INFLUXDB_ORG": USER, "INFLUXDB_TOKEN": self.token}
        return {
            "INFLUXDB_URL": self.url,
            "INFLUXDB_DATABASE": DATABASE,
            "INFLUXDB_SPANS_DATABASE": SPANS_DATABASE,
            **own,
        }

    def ask(self, query: str, database: str = DATABASE) -> list[dict[str, Any]]:
        """Return the series that an InfluxQL query answers with; times are in nanoseconds."""
        answer = self._session.post(
            f"{self.url}/query",
            params={"db": database, "epoch": "ns", "q": query},
            headers={"Authorization": f"Token {self.token}"},
            timeout=30,
        )
        answer.raise_for_status()
        (result,) = answer.json()["results"]
        assert "error" not in result, result
        found: list[dict[str, Any]] = result.get("series", [])
        return found

    def rows(self, query: str, database: str = DATABASE) -> list[dict[str, Any]]:
        """Return what a query answers as one dict for each row, with its tags and measurement."""
        return [
            {"measurement": series["name"], **series.get("tags", {})}
            | dict(zip(series["columns"], row, strict=True))
            for series in self.ask(query, database)
            for row in series["values"]
        ]

    def _options_1(self) -> list[str]:
        configuration = self._folder / "influxdb.conf"
        configuration.write_text(
            _CONFIGURATION_1.format(folder=self._folder, port=self._port, backup_port=free_port()),
            encoding="utf-8",
        )
        return ["-config", str(configuration)]

    def _options_2(self) -> list[str]:
        return [
            *("--http-bind-address", f"127.0.0.1:{self._port}"),
            *("--bolt-path", str(self._folder / "influxd.bolt")),
            *("--sqlite-path", str(self._folder / "influxd.sqlite")),
            *("--engine-path", str(self._folder / "engine")),
            "--reporting-disabled",
        ]

    def _set_up_1(self) -> None:
        # The first user is the only thing that may be made by no one.
        self._post(
            "/query",
            params={
                "q": f"CREATE USER {USER} WITH PASSWORD '{self._password}' WITH ALL PRIVILEGES"
            },
        )
        for name, hours in _HOURS.items():
            self.ask(f'CREATE DATABASE "{name}" WITH DURATION {hours}h SHARD DURATION 24h')

    def _set_up_2(self) -> None:
        found = self._post(
            "/api/v2/setup",
            json={
                "username": USER,
                "password": self._password,
                "org": USER,
                "bucket": DATABASE,
                "token": self.token,
                "retentionPeriodSeconds": _HOURS[DATABASE] * 3600,
            },
        )
        rule = {"type": "expire", "everySeconds": _HOURS[SPANS_DATABASE] * 3600}
        bucket = {"orgID": found["org"]["id"], "name": SPANS_DATABASE, "retentionRules": [rule]}
        self._post("/api/v2/buckets", json=bucket, headers={"Authorization": f"Token {self.token}"})

    def _post(self, path: str, **arguments: Any) -> Any:
        answer = self._session.post(self.url + path, timeout=30, **arguments)
        answer.raise_for_status()
        return answer.json()
