"""``daskscope serve`` by HTTPS, and what it refuses to do in clear."""

from __future__ import annotations

import os
import signal
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography.hazmat.primitives import serialization

from daskscope.codec import encode
from tests.certificates import Certificates
from tests.ports import free_port
from tests.service.beats import make_beat
from tests.service.test_command_line import daskscope
from tests.service_process import ServiceProcess

WAIT_SECONDS = 30


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    folder = tmp_path / "certificates"
    folder.mkdir()
    return Certificates(folder)


def until_served(certificates: Certificates, port: int, *, other_than: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    same = 0
    while same < 20:  # for a while the one before answers as well
        assert time.monotonic() < deadline
        try:
            same = same + 1 if certificates.serial(port) != other_than else 0
        except (ConnectionError, ssl.SSLError):  # a connection that the one before left behind
            same = 0


def test_beats_and_sign_in_by_https(tmp_path: Path, certificates: Certificates) -> None:
    with ServiceProcess(tmp_path / "data", **certificates.options) as service:
        assert service.url in service.output
        assert "/sign-in?code=" in service.sign_in_link
        beat = make_beat()
        trusting: Any = {"verify": str(certificates.authority), "timeout": 30}
        answer = requests.post(
            f"{service.url}/api/v1/heartbeats",
            data=encode(beat),
            headers={"Authorization": f"Bearer {service.token()}"},
            **trusting,
        )
        assert answer.json()["url"] == f"{service.url}/clusters/{beat.cluster.id}"
        link, _, code = service.sign_in_link.partition("?code=")
        signed_in = requests.post(link, data={"code": code}, allow_redirects=False, **trusting)
        assert "Secure" in signed_in.headers["Set-Cookie"]
        with pytest.raises(requests.RequestException):
            requests.get(service.url.replace("https:", "http:"), timeout=30)
        assert "read the private key" not in service.output


def test_a_renewed_certificate_is_used_and_a_broken_one_is_not(
    tmp_path: Path, certificates: Certificates
) -> None:
    with ServiceProcess(tmp_path / "data", **certificates.options) as service:
        first = certificates.serial(service.port)

        certificates.renew()
        until_served(certificates, service.port, other_than=first)
        second = certificates.serial(service.port)

        certificates.key.unlink()
        certificates.key.symlink_to(certificates.key.with_name("key1.pem"))
        os.kill(service.pid, signal.SIGHUP)
        service.wait_for("the old one stays in use")
        assert "does not belong" in service.output
        assert certificates.serial(service.port) == second

        certificates.renew()
        os.kill(service.pid, signal.SIGHUP)
        until_served(certificates, service.port, other_than=second)
        assert service.stop() == 0


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ("missing", "No such file"),
        ("not PEM", "is not a PEM file"),
        ("other key", "does not belong to the first certificate"),
        ("no key", "DASKSCOPE_TLS_KEY is not; HTTPS needs both"),
        ("encrypted", "openssl pkey"),
    ],
)
def test_a_pair_that_cannot_be_served_with_is_said(
    tmp_path: Path, certificates: Certificates, broken: str, told: str
) -> None:
    cert, key = certificates.cert, certificates.key
    if broken == "missing":
        cert = tmp_path / "nowhere.pem"
    elif broken == "not PEM":
        cert = tmp_path / "binary.pem"
        cert.write_bytes(b"\x30\x82")
    elif broken == "other key":
        certificates.renew()
        key = key.with_name("key1.pem")
    elif broken == "encrypted":
        key = tmp_path / "encrypted.pem"
        secret = serialization.load_pem_private_key(certificates.key.read_bytes(), None)
        key.write_bytes(
            secret.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"test"),
            )
        )
    options = ["--tls-cert", cert] + ([] if broken == "no key" else ["--tls-key", key])
    done = daskscope("serve", "--data-dir", tmp_path / "data", "--port", free_port(), *options)
    assert done.returncode == 1
    assert told in done.stderr
    assert "DASKSCOPE_TLS_" in done.stderr or broken == "encrypted"
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_key_that_everyone_may_read_is_warned_of(
    tmp_path: Path, certificates: Certificates
) -> None:
    certificates.key.chmod(0o644)
    with ServiceProcess(tmp_path / "data", **certificates.options) as service:
        assert f"chmod o-rwx {certificates.key}" in service.output


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_it_does_not_listen_in_clear_beyond_this_machine(tmp_path: Path, host: str) -> None:
    arguments = ("serve", "--data-dir", tmp_path / "data", "--port", free_port(), "--host", host)
    done = daskscope(*arguments, "--public-url", "http://monitor.example")
    assert done.returncode == 1
    for way_out in ("--tls-cert", "--trusted-proxy", "--host 127.0.0.1"):
        assert way_out in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_behind_a_proxy_it_wants_to_know_its_address(tmp_path: Path) -> None:
    done = daskscope(
        "serve", "--data-dir", tmp_path / "data", "--host", "0.0.0.0", "--trusted-proxy", "10.0.0.7"
    )
    assert done.returncode == 1
    assert "--public-url https://" in done.stderr


def test_a_proxy_that_is_no_address_is_said(tmp_path: Path) -> None:
    done = daskscope(
        "serve", "--data-dir", tmp_path, DASKSCOPE_TRUSTED_PROXIES="10.0.0.7, proxy.example"
    )
    assert done.returncode == 1
    assert "'proxy.example'" in done.stderr
    assert "10.0.0.0/8" in done.stderr
