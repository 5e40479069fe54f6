"""Settings that make no sense are errors that name them: a refusal is never passed over."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import dask.config
import pytest

from daskscope.config import settings
from daskscope.errors import ConfigurationError
from tests import forked

#: What Dask's configuration holds as daskscope is imported is not what it holds later.
IMPORT = """
import daskscope
from daskscope.config import settings
try:
    print(settings())
except daskscope.ConfigurationError as error:
    print("refused:", error)
"""


def of_new_process(text: str, folder: Path, **variables: str) -> str:
    """Return the settings of a process with that text in a configuration file, or what is wrong."""
    (folder / "dask.yaml").write_text(text)
    environment = os.environ | {"DASK_CONFIG": str(folder)} | variables
    done = forked.run(["-c", IMPORT], environment, program="python")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("daskscope: {logs: false}", "daskscope.logs is False"),
        ("daskscope: {computation: {exceptions: no}}", "daskscope.computation.exceptions is False"),
        ("daskscope: {events: []}", "daskscope.events is a list"),
        ("daskscope: {spool: ''}", "daskscope.spool is a str"),
        ("daskscope: false", "daskscope is False"),
        (
            "daskscope: {computation: {code: {transmitt: false}}}",
            "unknown setting daskscope.computation.code.transmitt. Did you mean "
            "daskscope.computation.code.transmit?",
        ),
        ("daskscope: {max_spans: 1}", "unknown setting daskscope.max-spans. Did you mean"),
    ],
)
def test_what_may_be_meant_as_a_refusal_in_a_file_is_not_passed_over(
    text: str, told: str, tmp_path: Path
) -> None:
    output = of_new_process(text, tmp_path)
    assert output.startswith("refused:")
    assert told in output


def test_what_may_be_meant_as_a_refusal_in_a_variable_is_not_passed_over(tmp_path: Path) -> None:
    output = of_new_process("{}", tmp_path, DASK_DASKSCOPE__LOGS="false")
    assert "daskscope.logs is False; it must hold these settings: daskscope.logs.transmit" in output


def test_sections_that_are_empty_or_written_with_underscores_are_well(tmp_path: Path) -> None:
    text = "daskscope: {logs: , computation: {code: {max_bytes: 1 KiB}}, tags: {a: b}}"
    output = of_new_process(text, tmp_path, DASK_DASKSCOPE__TRACES__TRANSMIT="false")
    for told in ("code_max_bytes=1000", "traces_transmit=False", "logs_transmit=True", "'a': 'b'"):
        assert told.replace("1000", "1024") in output


def test_tags_and_prices_in_variables_are_read_as_they_are_written_in_files(tmp_path: Path) -> None:
    output = of_new_process(
        "{}",
        tmp_path,
        DASK_DASKSCOPE__TAGS="{project: etl, version: 1.10}",
        DASK_DASKSCOPE__PRICES="{currency: USD, thread: 0.06}",
    )
    assert "tags={'project': 'etl', 'version': '1.10'}" in output
    assert "Prices(currency='USD', per_hour={'thread': 0.06})" in output
    output = of_new_process("{}", tmp_path, DASK_DASKSCOPE__PRICES="none")
    assert "Prices(currency='XXX', per_hour={})" in output
    # Of what is Python's as well, Dask makes a mapping.
    output = of_new_process("{}", tmp_path, DASK_DASKSCOPE__TAGS="{'project': 'etl', 'year': 2026}")
    assert "tags={'project': 'etl', 'year': '2026'}" in output


@pytest.mark.parametrize(
    ("variable", "text"),
    [("TAGS", "project=etl"), ("TAGS", "{project: etl"), ("PRICES", "0.06"), ("PRICES", "[1]")],
)
def test_tags_and_prices_that_are_no_mapping_are_not_passed_over(
    variable: str, text: str, tmp_path: Path
) -> None:
    output = of_new_process("{}", tmp_path, **{f"DASK_DASKSCOPE__{variable}": text})
    assert output.startswith(f"refused: daskscope.{variable.lower()} is ")
    assert "it must be a mapping" in output


def test_a_name_may_look_like_a_number(tmp_path: Path) -> None:
    output = of_new_process(
        "daskscope: {workspace: 7}", tmp_path, DASK_DASKSCOPE__NAME="2024", DASK_DASKSCOPE__TOKEN=""
    )
    assert "workspace='7', " in output
    assert "name='2024', " in output


def test_what_a_program_sets_counts_and_may_be_wrong_too() -> None:
    with dask.config.set({"daskscope": {"interval": "3s"}}):
        assert (settings().interval, settings().logs_transmit) == (3.0, True)
    with (
        dask.config.set({"daskscope.logs": False}),
        pytest.raises(ConfigurationError, match=r"daskscope\.logs is False"),
    ):
        settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endpoint", "ftp://there"),
        ("endpoint", "http://[::1"),
        ("endpoint", "http://there:abc"),
        ("endpoint", "http://there:99999"),
        ("endpoint", "http://there/?a=b"),
        ("endpoint", "http://over there"),
        ("endpoint", "http://"),
        ("scrub", ["a{9999999999}"]),
        ("scrub", ["(" * 5_000]),
        ("scrub", [r"CUST(\w+ ?)+-\d+"]),
        *(
            ("scrub", [pattern])
            for pattern in (
                *(r"(a|a)*b", r"(?:a?){30}a{30}", "a?" * 30 + "a" * 30, r"(a*)*b", r"(a?b?c?)*d"),
                *(r"(.*)(.*)(.*)(.*)x", r".*@.*\.com", r"\s*\s*\s*x", r".*(?=.*x)"),
                *(r"(\w+ ?)+x", r"(?:a|ab|b)*c", r"(.+)\1+x", r"(?:.{0,300}a){4}b"),
            )
        ),
        ("spool__max_bytes", "inf"),
        ("spool__max_bytes", -1),
        ("interval", "1e400s"),
        ("idle__timeout", "1e400s"),
        ("prices", {"currency": "USD", "thread": 10**400}),
        ("prices", {"currency": "XXX", "thread": 1}),
    ],
)
def test_values_that_make_no_sense_are_errors_that_name_the_setting(name: str, value: Any) -> None:
    path = name.replace("__", ".").replace("_", "-")
    with pytest.raises(ConfigurationError, match=re.escape(f"daskscope.{path} is ")):
        settings(**{name: value})


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"CUST-\d{6}", r"(?i)project[ -]aurora", r"(\w+ ?)++-\d+", r"(?>(a*)b)*"),
        *(
            r"(?:ab?){1,9}c+d*",
            r"[\w.+-]+@[\w-]+\.[\w.-]+",
            r"(?:\d[ -]?){13,16}",
            r"(?s)BEGIN.*END",
        ),
        *(r"(?:\d{1,3}\.){3}\d{1,3}", r"password\s*[:=]\s*\S+", r"(a|b)*c", r"(\w+\s)+x"),
        *(r"x(?:a|(b*)c)*", r"(?=(?:a{2,50}b){3,}?)"),
    ],
)
def test_patterns_that_take_no_long_time_are_well(pattern: str) -> None:
    assert settings(scrub=[pattern]).scrub == (pattern,)


def test_an_endpoint_with_a_password_is_refused_without_a_word_of_it() -> None:
    with pytest.raises(ConfigurationError, match=r"daskscope\.endpoint holds") as refused:
        settings(endpoint="http://ada:hunter22@there:8690")
    assert "hunter22" not in str(refused.value)
    assert refused.value.__cause__ is None
