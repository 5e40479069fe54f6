from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from daskscope import ConfigurationError
from daskscope_service.settings import Settings, option, variable

KEYS = ("0a" * 32, "0b" * 32)

_VALUES: dict[str, Any] = {
    "database_url": "postgresql+psycopg://user:password@database/daskscope",
    "influxdb_token": "a token of InfluxDB",
    "otlp_token": "a token of a collector",
    "metrics_token": "a token of Prometheus",
    "code_keys": KEYS,
    "oidc_client_secret": "a secret of the provider",
}
_SECRETS = [one for one in dataclasses.fields(Settings) if one.metadata.get("secret")]


@pytest.mark.parametrize("setting", _SECRETS, ids=lambda one: one.name)
def test_each_secret_can_be_given_in_a_file(
    setting: dataclasses.Field[Any], tmp_path: Path
) -> None:
    value = _VALUES[setting.name]
    file = tmp_path / "secret"
    file.write_text("\n".join(value) + "\n" if isinstance(value, tuple) else f"{value}\n")

    settings = Settings.from_environment({f"{variable(setting.name)}_FILE": str(file)})

    assert getattr(settings, setting.name) == value
    assert file.read_text().split()[-1] not in repr(settings)


def test_an_option_for_a_secret_names_a_file_that_wins_over_variables(tmp_path: Path) -> None:
    file, other = tmp_path / "one", tmp_path / "other"
    file.write_text("a" * 16)
    other.write_text("b" * 16)
    variables = {"DASKSCOPE_METRICS_TOKEN": "c" * 16, "DASKSCOPE_METRICS_TOKEN_FILE": str(other)}
    (setting,) = (one for one in _SECRETS if one.name == "metrics_token")

    assert option(setting) == "--metrics-token-file"
    assert Settings.from_environment(variables).metrics_token == "b" * 16
    given = Settings.from_environment(variables, metrics_token_file=file)
    assert given.metrics_token == "a" * 16


def test_the_file_of_keys_that_the_service_made_can_be_given(tmp_path: Path) -> None:
    file = tmp_path / "code.keys"
    file.write_text("\n".join(("# These, newest first.", *KEYS, "")))

    assert Settings.from_environment({"DASKSCOPE_CODE_KEYS_FILE": str(file)}).code_keys == KEYS


def test_a_file_that_cannot_be_read_is_named_with_its_variable(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for file, why in ((tmp_path / "missing", "No such file"), (binary, "no text in UTF-8")):
        with pytest.raises(ConfigurationError, match=f"DASKSCOPE_INFLUXDB_TOKEN_FILE is .*{why}"):
            Settings.from_environment({"DASKSCOPE_INFLUXDB_TOKEN_FILE": str(file)})


@pytest.mark.parametrize(
    "url",
    [
        *(
            "ftp://host.example",
            "host.example",
            "https://",
            "javascript:alert(1)",
            "//host.example",
        ),
        *(
            "https://user:password@host.example",
            "https://host.example?a=1",
            "https://host.example#a",
        ),
        *("https://host.example\\@evil.example", "https://host.example\n", "https://a, https://b"),
    ],
)
def test_a_public_address_is_a_host_and_nothing_else(url: str) -> None:
    with pytest.raises(ConfigurationError, match="DASKSCOPE_PUBLIC_URL"):
        Settings(public_url=url)


@pytest.mark.parametrize(
    "url", ["https://monitor.example", "http://10.0.0.1:8690/", "https://[2001:db8::1]:8443", ""]
)
def test_a_public_address_may_have_a_port(url: str) -> None:
    assert Settings(public_url=url).public_url == url


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("DASKSCOPE_PORT", "0", "is 0; it must be 1 to 65535"),
        ("DASKSCOPE_PORT", "65536", "is 65536; it must be 1 to 65535"),
        ("DASKSCOPE_PORT", "http", "is 'http'; it must be a number"),
        ("DASKSCOPE_THREADS", "0", "is 0; it must be at least 1"),
        ("DASKSCOPE_SILENT_AFTER", "nan", "is nan; it must be at least 1"),
        ("DASKSCOPE_QUOTA_BYTES", "-1", "is -1; it must be at least 0"),
        ("DASKSCOPE_MIGRATE", "maybe", "is 'maybe'; it must be one of apply, refuse"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_variable(name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} {says}$"):
        Settings.from_environment({name: text})
