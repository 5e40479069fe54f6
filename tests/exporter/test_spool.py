"""What could not be delivered survives the scheduler, and is delivered by the next one."""

from __future__ import annotations

import errno
import gzip
import json
import logging
import os
import resource
import shutil
import signal
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dask.delayed import delayed
from distributed import Client, LocalCluster

import daskscope
from daskscope.delivery import backoff
from daskscope.delivery import spool as spool_module
from daskscope.delivery.spool import Spool, directory, read_records
from tests import forked
from tests.exporter import counted_preload
from tests.exporter.conftest import TOKEN, Register, close_plugin, let_few_wait
from tests.exporter.dask_process import scheduler_process, worker_process
from tests.exporter.recorder import Recorder
from tests.patience import START_PATIENCE, wait_until
from tests.ports import free_port

ENDPOINT = "http://127.0.0.1:1"

Open = Callable[..., Spool]


def inc(x: int) -> int:
    return x + 1


# --- the files themselves -------------------------------------------------------------------------


@pytest.fixture
def drops() -> Counter[str]:
    return Counter()


class _Msvcrt:
    """What Windows has for ``fcntl``: a lock goes with the file that was opened."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        self._locks: dict[int, int] = {}  # by file, which open one holds it

    def locking(self, descriptor: int, mode: int, length: int) -> None:
        assert (mode, length) == (self.LK_NBLCK, 1)
        assert os.lseek(descriptor, 0, os.SEEK_CUR) > 1 << 30, "a locked byte cannot be read"
        file = os.fstat(descriptor).st_ino
        holder = self._locks.get(file, descriptor)
        if holder != descriptor and _is_open(holder, file):
            raise PermissionError(errno.EACCES, "it is locked")
        self._locks[file] = descriptor


def _is_open(descriptor: int, file: int) -> bool:
    try:
        return os.fstat(descriptor).st_ino == file
    except OSError:
        return False


def _as_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    msvcrt = _Msvcrt()
    monkeypatch.setattr(spool_module, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", msvcrt)
    unlink = os.unlink

    def refuses_open_files(path: Any, **options: Any) -> None:
        for entry in os.scandir("/proc/self/fd"):
            with suppress(FileNotFoundError):
                if os.readlink(entry.path) == str(path):
                    raise PermissionError(errno.EACCES, "it is open", str(path))
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", refuses_open_files)


@pytest.fixture(params=["POSIX", "Windows"])
def open_spool(
    tmp_path: Path,
    drops: Counter[str],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Open:
    if request.param == "Windows":
        _as_on_windows(monkeypatch)

    def open_spool(
        folder: Path = tmp_path / "spool", token: str = TOKEN, max_bytes: int = 1 << 20
    ) -> Spool:
        return Spool(folder, endpoint=ENDPOINT, token=token, max_bytes=max_bytes, drops=drops)

    return open_spool


def _all(spool: Spool) -> list[bytes]:
    spool.claim()
    found = []
    while (body := spool.next()) is not None:
        found.append(body)
        spool.taken()
    return found


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.beats"))


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_what_one_leaves_the_next_one_delivers_in_order_and_removes(
    open_spool: Open, tmp_path: Path
) -> None:
    bodies = [b"%d" % number * 100 for number in range(50)]
    for some in (bodies[:20], bodies[20:]):
        spool = open_spool(max_bytes=10_000)
        assert all(spool.append(body) for body in some)
        spool.close()
    files = _files(tmp_path / "spool")
    assert len(files) > 2
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}

    assert _all(open_spool()) == bodies
    assert not _files(tmp_path / "spool")


def test_a_delivery_that_is_broken_off_begins_anew(open_spool: Open) -> None:
    first = open_spool()
    assert first.append(b"one")
    assert first.append(b"two")
    first.close()

    second = open_spool()
    second.claim()
    assert second.next() == b"one"
    second.taken()
    assert second.next() == second.next() == b"two"
    second.close()
    assert _all(open_spool()) == [b"one", b"two"]


def test_another_token_sees_nothing_and_no_token_is_in_a_file_or_its_name(
    open_spool: Open, tmp_path: Path
) -> None:
    spool = open_spool()
    spool.append(b"body")
    spool.close()
    (file,) = _files(tmp_path / "spool")
    assert TOKEN not in file.name
    assert TOKEN.encode() not in file.read_bytes()

    assert _all(open_spool(token="dsk_another")) == []
    assert _all(open_spool()) == [b"body"]


def test_two_at_once_leave_each_others_files_alone(open_spool: Open) -> None:
    one, other = open_spool(), open_spool()
    assert one.append(b"one's")
    assert other.append(b"the other's")
    assert _all(one) == []
    assert _all(other) == []

    one.close()
    assert _all(other) == [b"one's"]
    other.close()
    assert _all(open_spool()) == [b"the other's"]


def test_of_two_that_come_at_once_one_delivers(open_spool: Open) -> None:
    left = open_spool()
    left.append(b"left")
    left.close()
    one, other = open_spool(), open_spool()
    one.claim()
    assert _all(other) == []
    assert _all(one) == [b"left"]


@pytest.mark.parametrize("where", ["header", "length", "checksum", "body"])
def test_a_flipped_bit_costs_one_record_and_one_warning(
    open_spool: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    spool = open_spool()
    bodies = [b"a" * 100, b"b" * 100, b"c" * 100, b"d" * 100]
    for body in bodies:
        spool.append(body)
    spool.close()
    (file,) = _files(tmp_path / "spool")
    content = bytearray(file.read_bytes())
    second = len(content) // 4
    content[second + {"header": 0, "length": 6, "checksum": 9, "body": 50}[where]] ^= 0x10
    file.write_bytes(content)

    assert _all(open_spool()) == [bodies[0], *bodies[2:]]
    (warning,) = _warnings(caplog)
    assert str(file) in warning
    assert not file.exists()


def test_a_tail_that_was_cut_off_costs_no_more(
    open_spool: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = open_spool()
    for body in (b"whole", b"cut off"):
        spool.append(body)
    spool.close()
    (file,) = _files(tmp_path / "spool")
    file.write_bytes(file.read_bytes()[:-3])
    assert _all(open_spool()) == [b"whole"]
    assert len(_warnings(caplog)) == 1


def test_what_is_no_spool_at_all_is_no_trouble(open_spool: Open, tmp_path: Path) -> None:
    spool = open_spool()
    spool.append(b"body")
    spool.close()
    (file,) = _files(tmp_path / "spool")
    file.with_name("0" + file.name).write_bytes(bytes(range(256)) * 10)
    file.with_name("1" + file.name).mkdir()
    file.with_name("2" + file.name).symlink_to("/dev/zero")
    assert _all(open_spool()) == [b"body"]


def test_beyond_its_room_the_oldest_go_and_are_counted(
    open_spool: Open, tmp_path: Path, drops: Counter[str]
) -> None:
    before = open_spool()
    before.append(b"before" * 10)
    before.close()
    spool = open_spool(max_bytes=10_000)
    bodies = [b"%03d" % number * 30 for number in range(300)]
    for body in bodies:
        assert spool.append(body)
        assert sum(file.stat().st_size for file in _files(tmp_path / "spool")) <= 10_000
    spool.close()

    kept = _all(open_spool())
    assert len(kept) > 50
    assert kept == bodies[-len(kept) :]
    assert drops == {"spooled beat": len(bodies) + 1 - len(kept)}


def test_a_beat_beyond_all_room_pushes_nothing_out(
    open_spool: Open, caplog: pytest.LogCaptureFixture, drops: Counter[str]
) -> None:
    spool = open_spool(max_bytes=1_000)
    assert spool.append(b"small")
    assert not spool.append(b"x" * 2_000)
    assert not spool.append(b"x" * 2_000)
    spool.close()
    assert _all(open_spool()) == [b"small"]
    (warning,) = _warnings(caplog)
    assert "spool.max-bytes" in warning
    assert not drops


@contextmanager
def _no_file_larger_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_costs_a_warning_and_no_record_that_is_whole(
    open_spool: Open, caplog: pytest.LogCaptureFixture
) -> None:
    spool = open_spool()
    with _no_file_larger_than(1_000):  # as a full disk does, the kernel writes what still fits
        kept = [spool.append(b"%d" % number * 300) for number in range(6)]
    assert kept == [True, True, True, False, False, False]
    assert spool.append(b"room again")
    spool.close()
    assert _all(open_spool()) == [b"0" * 300, b"1" * 300, b"2" * 300, b"room again"]
    assert len(_warnings(caplog)) == 1


def test_a_folder_that_cannot_be_written_costs_one_warning(
    open_spool: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    spool = open_spool(tmp_path / "file" / "spool")
    spool.claim()
    assert not spool.append(b"body")
    assert not spool.append(b"body")
    spool.close()
    (warning,) = _warnings(caplog)
    assert "daskscope.spool" in warning


def test_without_a_home_nothing_is_spooled_and_one_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert directory(None) is None
    [warning] = _warnings(caplog)
    assert "no data can be spooled" in warning
    assert "daskscope.spool.directory" in warning


@pytest.mark.parametrize("open_spool", ["Windows"], indirect=True)
def test_what_was_delivered_and_cannot_be_removed_yet_goes_later(
    open_spool: Open, tmp_path: Path
) -> None:
    spool = open_spool()
    assert spool.append(b"one")
    (file,) = _files(tmp_path / "spool")
    with file.open("rb"):  # another scheduler looks at it
        spool.discard()
    assert file.exists()
    assert not spool.is_used
    assert spool.append(b"two")
    spool.discard()
    assert not _files(tmp_path / "spool")


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {}, ".local/state/daskscope"),
        ("darwin", {}, "Library/Application Support/daskscope"),
        ("win32", {}, "AppData/Local/daskscope"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/daskscope"),
        ("win32", {"LOCALAPPDATA": "/local", "XDG_STATE_HOME": "/state"}, "/state/daskscope"),
    ],
)
def test_the_folder_is_that_of_the_platform_unless_an_older_one_is_there(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    platform: str,
    variables: dict[str, str],
    folder: str,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(spool_module, "_PLATFORM", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert directory(None) == tmp_path / folder
    older = tmp_path / ".local/state/daskscope"
    older.mkdir(parents=True)
    if "XDG_STATE_HOME" not in variables:
        assert directory(None) == older


def test_the_folder_is_that_of_the_machines_own_conventions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert directory(None) == Path("/state/daskscope")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert directory(None) == tmp_path / ".local/state/daskscope"
    assert directory("~/elsewhere") == tmp_path / "elsewhere"
    assert directory("") is None


def _eventually(look: Callable[[], object], what: str) -> None:
    """Wait until ``look`` finds something on the disk, of which no one tells."""
    wait_until(look, what=what)


# --- schedulers that end --------------------------------------------------------------------------


def _options(recorder: Recorder, folder: Path) -> list[str]:
    return [
        "--preload", "daskscope",
        "--daskscope-endpoint", recorder.url,
        "--daskscope-interval", "100ms",
        "--daskscope-spool-directory", str(folder),
    ]  # fmt: skip


def _is_spooled(folder: Path, text: str) -> bool:
    return text in _spooled(folder)


def _spooled(folder: Path) -> str:
    """Everything in the spool, as text."""
    return "".join(
        gzip.decompress(body).decode()
        for file in _files(folder)
        for body in read_records(file.read_bytes())
    )


def test_what_a_killed_scheduler_could_not_deliver_arrives_from_the_next_one(
    recorder: Recorder, tmp_path: Path
) -> None:
    options = _options(recorder, tmp_path)
    recorder.misbehave = lambda path: 503
    with scheduler_process(*options, DASK_DASKSCOPE__TOKEN=TOKEN) as first:
        with (
            worker_process(first.address),
            Client(first.address, timeout=START_PATIENCE) as client,
        ):
            daskscope.register(client, token=TOKEN)
            for number in range(5):
                assert (
                    client.compute(delayed(inc)(number)).result(timeout=START_PATIENCE)
                    == number + 1
                )
            _eventually(
                lambda: _spooled(tmp_path).count('"status":"finished"') >= 5, "five in the spool"
            )
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(20)
    assert not recorder.beats
    recorder.misbehave = lambda path: None

    with scheduler_process(*options, DASK_DASKSCOPE__TOKEN=TOKEN) as second:
        recorder.wait_for(
            lambda: [c.status for c in recorder.computations().values()].count("finished") == 5,
            "all computations",
        )
        named = {f.code for c in recorder.computations().values() for f in c.frames or ()}
        assert named
        assert named <= set(recorder.code())
        _eventually(lambda: not _files(tmp_path), "the end of the spool")
        second.stop()
    clusters = {beat.cluster.id for beat in recorder.beats}
    assert len(clusters) == 2
    for cluster in clusters:
        seqs = [beat.seq for beat in recorder.beats if beat.cluster.id == cluster]
        assert seqs == sorted(seqs)


@pytest.mark.uncounted("it is reported by another cluster")
@pytest.mark.own_cluster
@pytest.mark.parametrize("how", ["hang", 500])
def test_a_cluster_that_closes_while_the_service_is_away_still_tells_that_it_stopped(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    tmp_path: Path,
    how: int | str,
) -> None:
    stopped = register(spool__directory=str(tmp_path), otlp__enabled=False).cluster_id
    recorder.misbehave = lambda path: how
    client.submit(inc, 1).result()
    refused = recorder.refused
    recorder.wait_for(lambda: recorder.refused > refused, "a beat that is not taken")
    client.close()
    cluster.close()
    recorder.misbehave = lambda path: None

    # In the same process and all: a notebook's next cluster.
    with LocalCluster(n_workers=0, dashboard_address=":0") as second, Client(second) as again:
        daskscope.register(
            again,
            endpoint=recorder.url,
            token=TOKEN,
            interval="100ms",
            spool__directory=str(tmp_path),
            otlp__enabled=False,
        )
        recorder.wait_for(
            lambda: [b for b in recorder.beats if b.cluster.id == stopped and b.phase == "stop"],
            "the first one's goodbye",
        )
    assert "finished" in {row.status for row in recorder.computations().values()}


def test_a_script_that_ends_while_the_service_hangs_leaves_all_to_the_next(
    recorder: Recorder, tmp_path: Path
) -> None:
    recorder.misbehave = lambda path: "hang"
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            from distributed import Client
            import daskscope

            if __name__ == "__main__":
                client = Client(
                    n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0",
                    silence_logs=50,
                )
                daskscope.register(
                    endpoint={recorder.url!r}, token={TOKEN!r}, interval="100ms",
                    spool__directory={str(tmp_path)!r}, otlp__enabled=False,
                )
                print(client.submit(sum, [1, 2]).result())
            """
        )
    )
    done = forked.run(
        [str(script)],
        os.environ | counted_preload.beside(differs := tmp_path / "differs"),
        timeout=START_PATIENCE,
        program="python",
    )
    assert done.returncode == 0, done.stderr
    counted_preload.assert_equal(differs)
    spooled = _spooled(tmp_path)
    assert '"phase":"stop"' in spooled
    assert '"status":"finished"' in spooled


def test_an_outage_loses_no_row_not_even_those_that_memory_cannot_hold(
    client: Client,
    register: Register,
    recorder: Recorder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backoff, "MAX_PAUSE", 0.2)
    let_few_wait(monkeypatch, 500)
    register(spool__directory=str(tmp_path), otlp__enabled=False, events__allow=["mine"])
    recorder.misbehave = lambda path: 503
    for burst in range(6):
        for number in range(100):
            client.log_event("mine", f"<{burst}.{number}>")
        _eventually(partial(_is_spooled, tmp_path, f"<{burst}.99>"), "the burst in the spool")
    recorder.misbehave = lambda path: None

    recorder.wait_for(lambda: len(recorder.events()) == 600, "all events")
    told = {json.loads(event.message) for event in recorder.events()}
    assert told == {f"<{burst}.{number}>" for burst in range(6) for number in range(100)}
    _eventually(lambda: not _files(tmp_path), "the end of the spool")
    assert not recorder.beats[-1].drops


@pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no file that is open")
def test_what_is_removed_from_the_spool_is_written_there_again(
    client: Client,
    register: Register,
    recorder: Recorder,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = tmp_path / "spool"
    register(spool__directory=str(folder), otlp__enabled=False, events__allow=["mine"])
    recorder.misbehave = lambda path: 503
    client.log_event("mine", "<first>")
    _eventually(partial(_is_spooled, folder, "<first>"), "the event in the spool")
    shutil.rmtree(folder)
    client.log_event("mine", "<second>")
    for event in ("<first>", "<second>"):
        _eventually(partial(_is_spooled, folder, event), f"{event} in the spool")
    assert [text for text in _warnings(caplog) if "removed by another program" in text]
    recorder.misbehave = lambda path: None
    recorder.wait_for(lambda: len(recorder.events()) == 2, "both events")
    assert not recorder.beats[-1].drops


def test_no_spool_where_none_is_wanted(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    recorder.misbehave = lambda path: 503
    register(spool__directory="")
    refused = recorder.refused
    recorder.wait_for(lambda: recorder.refused > refused + 1, "refused beats")
    assert not list(tmp_path.rglob("*"))


@pytest.mark.uncounted("no service takes its rows")
@pytest.mark.parametrize("turn", ["first", "second"])
def test_no_test_delivers_what_another_one_left(
    client: Client, register: Register, turn: str
) -> None:
    folder = Path(os.environ["XDG_STATE_HOME"], "daskscope")
    assert not list(folder.glob("*"))
    register(endpoint=f"http://127.0.0.1:{free_port()}")
    client.submit(inc, 1).result()
    close_plugin(client)
    assert list(folder.glob("*.beats"))
