"""An agent beside a scheduler, a gateway that asks for a token over TLS, and InfluxDB behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import trustme

from tests.patience import wait_until
from tests.stack.collector import Collector, into
from tests.stack.influxdb import InfluxDB
from tests.stack.test_outages import arrived, expected, metrics, send

_TOKENS = ("the-new-one", "the-old-one")


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    for part in certificate.cert_chain_pems:
        part.write_to_path(tmp_path / "cert.pem", append=True)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path / "ca.pem"


@pytest.fixture
def gateway(
    otelcol: Path, influxdb: InfluxDB, authority: Path, tmp_path: Path
) -> Iterator[Collector]:
    tokens = tmp_path / "tokens"
    tokens.write_text("\n".join(_TOKENS) + "\n", encoding="utf-8")
    environment = {
        **influxdb.for_collector,
        "TOKEN_FILE": str(tokens),
        "TLS_CERT": str(tmp_path / "cert.pem"),
        "TLS_KEY": str(tmp_path / "key.pem"),
    }
    files = ["base.yaml", into(influxdb), "secure.yaml"]
    with Collector(otelcol, tmp_path / "gateway", files, environment) as gateway:
        yield gateway


def test_who_has_no_token_is_refused_and_each_line_of_the_file_is_one(
    gateway: Collector, authority: Path
) -> None:
    address = f"https://127.0.0.1:{gateway.port}/v1/metrics"
    for token, status in (("", 401), ("another", 401), *((token, 200) for token in _TOKENS)):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = requests.post(
            address, json=metrics(0), headers=headers, verify=str(authority), timeout=30
        )
        assert answer.status_code == status, (token, answer.text)


def test_what_an_agent_takes_arrives_also_if_the_gateway_comes_later(
    otelcol: Path, gateway: Collector, influxdb: InfluxDB, authority: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(_TOKENS[0], encoding="utf-8")
    gateway.part.stop()
    environment = {
        "GATEWAY_ENDPOINT": f"https://127.0.0.1:{gateway.port}",
        "GATEWAY_CA": str(authority),
        "TOKEN_FILE": str(token),
    }
    with Collector(otelcol, tmp_path / "agent", ["agent.yaml"], environment) as agent:
        for number in range(3):
            assert send(agent, number)
        gateway.part.start()
        wait_until(lambda: arrived(influxdb) == expected(3))
