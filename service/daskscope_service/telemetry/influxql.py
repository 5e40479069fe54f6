"""InfluxQL, the query language that both InfluxDB 1 and 2 understand, and a client for it."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from daskscope.errors import ConfigurationError, install_with
from daskscope_service.db import time_limit
from daskscope_service.telemetry.store import Unavailable

#: Timeouts in seconds, of connecting and of an answer: a page waits for it.
_CONNECT_SECONDS, _ANSWER_SECONDS = 2.0, 10.0

logger = logging.getLogger(__name__)


class InfluxQL:
    """A client of an InfluxDB.

    Parameters
    ----------
    url
        Its address.
    token
        Its token; for InfluxDB 1, user and password with a colon between. "": none.

    Raises
    ------
    ConfigurationError
        ``influxdb-client`` is not installed.
    """

    def __init__(self, url: str, token: str) -> None:
        try:
            from influxdb_client.client.influxdb_client import InfluxDBClient
        except ImportError:
            raise ConfigurationError(
                "DASKSCOPE_INFLUXDB_URL is set, but the InfluxDB client is not installed: "
                f"{install_with('influxdb')}"
            ) from None
        timeout = (_CONNECT_SECONDS * 1000, _ANSWER_SECONDS * 1000)
        # An InfluxQL query names a database and no organisation.
        self._client = InfluxDBClient(url, token, org="-", timeout=timeout)
        self._headers = {"Authorization": f"Token {token}"} if token else {}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ask(self, database: str, *statements: str, epoch: str = "ms") -> list[list[dict[str, Any]]]:
        """Return the series that each statement answers with; times are in units of ``epoch``.

        Raises
        ------
        Unavailable
            InfluxDB does not answer, or refuses a statement.
        """
        from influxdb_client.rest import ApiException
        from urllib3.exceptions import HTTPError

        try:
            with time_limit.asking_others():
                answer = self._client.api_client.call_api(
                    "/query",
                    "GET",
                    query_params=[
                        ("db", database),
                        ("epoch", epoch),
                        ("q", "; ".join(statements)),
                    ],
                    header_params=dict(self._headers),
                    response_type="object",
                    _return_http_data_only=True,
                )
        except ApiException as error:
            # The answer may name databases and users: only the operator may see it.
            logger.warning("InfluxDB answered with %s: %s", error.status, error.body)
            raise Unavailable(f"it answers with status {error.status}") from None
        except HTTPError as error:
            logger.warning("InfluxDB cannot be reached: %s", error)
            raise Unavailable("it cannot be reached") from None
        results: list[dict[str, Any]] = answer["results"]
        for result in results:
            if "error" in result:
                logger.warning("InfluxDB refused a query: %s", result["error"])
                raise Unavailable("it refuses the query")
        return [result.get("series", []) for result in results]

    def rows(self, database: str, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a statement without GROUP BY: for each a dict, without empty columns.

        Its ``time`` is in nanoseconds. Raises what :meth:`ask` raises.
        """
        (answer,) = self.ask(database, statement, epoch="ns")
        return [
            {
                key: value
                for key, value in zip(series["columns"], row, strict=True)
                if value not in (None, "")
            }
            for series in answer
            for row in series["values"]
        ]


def name(name: str) -> str:
    """Return the name of a measurement, a tag or a field, quoted and escaped."""
    return '"' + _escaped(name).replace('"', '\\"') + '"'


def text(text: str) -> str:
    """Return a text, quoted and escaped."""
    return "'" + _escaped(text).replace("'", "\\'") + "'"


def any_of(tag: str, values: Collection[str]) -> str:
    """Return the condition that a tag has one of ``values``."""
    return "(" + " OR ".join(f"{name(tag)} = {text(value)}" for value in sorted(values)) + ")"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
