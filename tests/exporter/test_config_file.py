"""The file that a login is written to: nothing of the user's is lost with it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import dask.config
import pytest
import yaml

from daskscope import config_file
from daskscope.errors import ConfigurationError

LOGIN = {"endpoint": "https://monitor.example", "token": "dsk_abc_0123"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Dask's configuration folder, which is not there yet."""
    folder = tmp_path / "dask"
    monkeypatch.setattr(dask.config, "PATH", str(folder))
    return folder


def test_a_login_is_written_where_dask_looks_and_replaces_the_one_before(folder: Path) -> None:
    file = config_file.own_file()
    config_file.write(file, endpoint="http://old", token="dsk_old")
    assert config_file.own_file() == file == folder / "daskscope.yaml"
    config_file.write(file, **LOGIN)
    assert yaml.safe_load(file.read_text()) == {"daskscope": LOGIN}
    assert dask.config.collect([str(folder)], env={}) == {"daskscope": LOGIN}


@pytest.mark.parametrize(
    "text",
    ["", "\n", "daskscope:\n", "{}\n", "daskscope:\n  token: old\n  endpoint: http://old\n"],
)
def test_a_file_that_holds_nothing_else_is_replaced(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "daskscope.yaml").write_text(text)
    assert config_file.own_file() == folder / "daskscope.yaml"


@pytest.mark.parametrize(
    "text",
    [
        "# only a comment\n",
        "daskscope:\n  token: old  # of the team\n",
        "daskscope:\n  token: old\n  interval: 5s\n",
        "distributed:\n  worker: {}\n",
        "- a list\n",
        "daskscope: dsk_secret\n",
        "daskscope: {token: dsk_secret",
        "a: 1\n---\nb: 2\n",
    ],
)
def test_a_file_that_holds_more_is_left_and_the_error_says_what_to_do(
    folder: Path, text: str
) -> None:
    folder.mkdir()
    file = folder / "daskscope.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match="another file of that folder") as raised:
        config_file.own_file()
    assert str(file) in str(raised.value)
    assert "dsk_secret" not in str(raised.value)
    assert file.read_text() == text


@pytest.mark.parametrize("place", ["file.yaml", "missing.yml"])
def test_where_dask_config_names_a_file_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file.yaml").write_text("")
    monkeypatch.setattr(dask.config, "PATH", str(tmp_path / place))
    with pytest.raises(ConfigurationError, match="daskscope token create") as raised:
        config_file.own_file()
    assert str(tmp_path / place) in str(raised.value)


def test_a_file_that_cannot_be_read_is_an_error_that_says_so(folder: Path) -> None:
    folder.mkdir()
    (folder / "daskscope.yaml").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="cannot read"):
        config_file.own_file()


def test_a_file_is_written_at_once_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "daskscope.yaml"
    before = os.umask(0)
    try:
        config_file.write(file, **LOGIN)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    config_file.write(file, **LOGIN)
    assert LOGIN["token"] in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "dotfiles.yaml", tmp_path / "daskscope.yaml"
    target.write_text("a: 1\n")
    link.symlink_to(target)
    config_file.write(link, **LOGIN)
    assert link.is_symlink()
    assert LOGIN["token"] in target.read_text()


def test_what_cannot_be_written_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot write"):
        config_file.write(tmp_path / "file" / "daskscope.yaml", **LOGIN)
    folder = tmp_path / "daskscope.yaml"
    folder.mkdir()
    with pytest.raises(ConfigurationError, match="cannot write"):
        config_file.write(folder, **LOGIN)
    assert sorted(tmp_path.iterdir()) == [folder, tmp_path / "file"]
