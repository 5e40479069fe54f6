"""Dask's configuration file of a user: what daskscope changes in it, and what it leaves."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import dask.config
import pytest
import yaml

from daskscope import config_file
from daskscope.errors import ConfigurationError

VALUES = {"endpoint": "https://monitor.example", "token": "dsk_abc_0123"}
FILE = Path("daskscope.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        "# no line end",
        "distributed:\n  worker:\n    memory: {target: 0.6}\n",
        "distributed: {}",
        "distributed: {}\n\n# at the end\n",
        "daskscope:\n",
        "daskscope:",
        "daskscope: null\nother: 1\n",
        "daskscope: ~  # nothing yet\nother: 1\n",
        "daskscope:\n  interval: 5s\n",
        "daskscope:\n    interval: 5s  # often\n    tags:\n      a: b\nother: 1\n",
        "daskscope:\n  token: null\n  endpoint: http://127.0.0.1:8690  # here\n",
        "daskscope:\n  token:\n  endpoint:\n",
        "daskscope:\n  token: 'old'\n  tags: {a: b}\n  endpoint: >-\n    http://old\n  name: x\n",
        "daskscope: {token: old, tags: {a: b}}\n",
        "daskscope: {}\n",
        "{}\n",
        '{"daskscope": {"interval": "5s"}, "other": [1, 2]}\n',
        '{"other": [1, 2]}',
        "---\nother: ä\n...\n",
    ],
)
def test_settings_are_put_in_and_all_else_stays(text: str) -> None:
    changed = config_file.with_settings(text, VALUES, FILE)
    before = yaml.safe_load(text) or {}
    expected = before | {"daskscope": {**(before.get("daskscope") or {}), **VALUES}}
    assert yaml.safe_load(changed) == expected
    for comment in ("# only a comment", "# no line end", "# at the end", "# often", "# here"):
        assert (comment in changed) == (comment in text)
    assert config_file.with_settings(changed, VALUES, FILE) == changed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a list\n", "not a mapping"),
        ("daskscope: {token: dsk_secret", "not valid YAML in line 1"),
        ("x: &a {interval: 5s}\ndaskscope: *a\n", "by hand"),
        ("daskscope:\n  <<: &a {token: b}\n  token: x\n  token: y\n", "by hand"),
        ("daskscope: a text\n", "by hand"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
    ],
)
def test_what_cannot_be_changed_in_place_is_left_and_said(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        config_file.with_settings(text, VALUES, FILE)
    assert "daskscope.yaml" in str(raised.value)
    assert "dsk_secret" not in str(raised.value)


def test_a_file_is_written_at_once_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "daskscope.yaml"
    before = os.umask(0)
    try:
        config_file.write(file, "a: 1\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    config_file.write(file, "a: 2\n")
    assert file.read_text() == "a: 2\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "dotfiles.yaml", tmp_path / "daskscope.yaml"
    target.write_text("a: 1\n")
    link.symlink_to(target)
    config_file.write(link, "a: 2\n")
    assert link.is_symlink()
    assert target.read_text() == "a: 2\n"


def test_what_cannot_be_written_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot write"):
        config_file.write(tmp_path / "file" / "daskscope.yaml", "a: 1\n")
    folder = tmp_path / "daskscope.yaml"
    folder.mkdir()
    with pytest.raises(ConfigurationError, match="cannot write"):
        config_file.write(folder, "a: 1\n")
    assert sorted(tmp_path.iterdir()) == [folder, tmp_path / "file"]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("config", "config/daskscope.yaml"),
        ("missing", "missing/daskscope.yaml"),
        ("file.yaml", "file.yaml"),
        ("missing.yml", "missing.yml"),
    ],
)
def test_the_file_is_where_dask_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, expected: str
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "file.yaml").write_text("")
    monkeypatch.setattr(dask.config, "PATH", str(tmp_path / place))
    assert config_file.user_file() == tmp_path / expected
