"""The code around a call is read once per place, and is the same as Dask's client reads."""

from __future__ import annotations

import importlib
import inspect
import linecache
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import dask.config
import pytest
from distributed import Client, LocalCluster, wait
from distributed.client import SourceCode
from hypothesis import given
from hypothesis import strategies as st

import daskscope
from daskscope import calling_code, frame_source
from daskscope.config import settings
from daskscope.observe.tasks.code import cut
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.recorder import Recorder

pytestmark = pytest.mark.contract


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Whose source was looked for."""
    sources: list[object] = []
    look_for = frame_source.source_of

    def noted(frame: Any) -> Any:
        sources.append(frame)
        return look_for(frame)

    monkeypatch.setattr(calling_code, "source_of", noted)
    return sources


@pytest.fixture
def outside_pytest() -> Iterator[Path]:
    """Return a folder whose code Dask reports: it ignores files below a name with "pytest"."""
    with TemporaryDirectory(prefix="daskscope-") as folder:
        yield Path(folder)


def test_a_loop_has_its_source_looked_for_once(
    client: Client, register: Register, recorder: Recorder, reads: list[object]
) -> None:
    register()
    wait([client.submit(str, number, pure=False) for number in range(50)])

    frames = recorder.computation().frames
    assert frames is not None
    assert frames[-1].file == __file__
    assert len(reads) <= settings().code_frames


def test_each_line_has_its_own_whatever_calls_it(client: Client, register: Register) -> None:
    register()

    def here() -> Any:
        return client._get_computation_code(nframes=2)

    def of_dask() -> Any:
        return Client._get_computation_code(nframes=2)

    def lines(read: Callable[[], Any]) -> list[int]:
        found = []
        for _ in range(2):
            found.append(read()[-2].lineno_frame)
            found.append(read()[-2].lineno_frame)
        return found

    ours = lines(here)
    assert ours == lines(of_dask)
    assert len(set(ours)) == 2
    assert {frame.filename for frame in here()} == {__file__}


def test_how_many_frames_and_which_are_ignored_is_heeded_each_time(
    client: Client, register: Register
) -> None:
    register(computation__code__frames=1)
    ignored = "distributed.diagnostics.computations.ignore-modules"

    def read(frames: int) -> Any:
        return client._get_computation_code(nframes=frames)

    counts = []
    for chosen in ({}, {ignored: [*dask.config.get(ignored), r"tests(\.|$)"]}):
        with dask.config.set(chosen):
            counts.append([len(read(frames)) for frames in (0, 1, 2)])
            files = {frame.filename for frame in read(2)}
    # As many as our settings say, or more where Dask's do.
    assert counts[0] == [1, 1, 2]
    assert __file__ not in files


def test_the_users_own_code_goes_before_that_of_a_library_that_calls_for_them(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    outside_pytest: Path,
) -> None:
    installed = outside_pytest / "site-packages"
    installed.mkdir()
    library = installed / "of_a_library.py"
    library.write_text(
        "def map_all(client, values):\n"
        "    return [submit(client, value) for value in values]\n"
        "def submit(client, value):\n"
        "    return client.submit(str, value, pure=False)\n"
    )
    monkeypatch.syspath_prepend(str(installed))
    map_all = importlib.import_module("of_a_library").map_all
    register()

    wait(map_all(client, range(3)))
    frames = recorder.computation().frames
    assert frames is not None
    assert frames[-1].file == __file__
    assert library.name not in {Path(frame.file).name for frame in frames}

    # In a thread of its own, nothing of the user's calls it.
    with ThreadPoolExecutor(1) as pool:
        wait(pool.submit(map_all, client, range(3)).result())
    of_thread = recorder.computation(
        lambda row: row.frames and row.frames[-1].file != __file__
    ).frames
    assert of_thread is not None
    assert Path(of_thread[-1].file) == library


def test_who_waits_for_a_librarys_coroutine_on_the_clients_event_loop_calls_it(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    outside_pytest: Path,
) -> None:
    installed = outside_pytest / "site-packages"
    installed.mkdir()
    (installed / "of_coroutines.py").write_text(
        "import asyncio\n"
        "async def work(client, value):\n"
        "    return await client.submit(str, value, pure=False)\n"
        "async def beside(client, value):\n"
        "    return await asyncio.create_task(work(client, value))\n"
        "def fit(client, value, how=work):\n"
        "    return client.sync(how, client, value)\n"
    )
    monkeypatch.syspath_prepend(str(installed))
    library = importlib.import_module("of_coroutines")
    register()

    assert library.fit(client, 7) == "7"
    frames = recorder.computation().frames
    assert frames is not None
    assert (frames[-1].file, len(frames)) == (__file__, 1)

    # Nobody waits for just this one: whose it is is not known.
    assert library.fit(client, 8, library.beside) == "8"
    other = recorder.computation(lambda row: row.frames and row.frames[-1].file != __file__).frames
    assert other is not None
    assert Path(other[-1].file).name == "of_coroutines.py"


def test_a_frame_that_is_asked_for_by_its_level_is_that_one(
    client: Client, register: Register
) -> None:
    register(computation__code__frames=1)
    (frame,) = client._get_computation_code(1, nframes=1)
    assert frame.code == inspect.getsource(test_a_frame_that_is_asked_for_by_its_level_is_that_one)


def test_what_is_remembered_is_bounded(
    client: Client, register: Register, reads: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling_code, "MAX_PLACES", 2)
    monkeypatch.setattr(calling_code, "MAX_STACKS", 1)
    register(computation__code__frames=1)

    def three_places() -> None:
        client._get_computation_code(nframes=1)
        client._get_computation_code(nframes=1)
        client._get_computation_code(nframes=1)

    for _ in range(2):
        three_places()
    assert len(reads) == 6


def test_a_call_has_the_code_of_its_own_callers_whatever_was_called_before(
    client: Client, register: Register
) -> None:
    register(computation__code__frames=2)

    def asks() -> tuple[str, ...]:
        return tuple(frame.code for frame in client._get_computation_code(nframes=2))

    def one() -> tuple[str, ...]:
        return asks()

    def other() -> tuple[str, ...]:
        return asks()

    def deeper(left: int) -> tuple[str, ...]:
        return deeper(left - 1) if left else asks()

    asking = inspect.getsource(asks)
    for function in (one, other, one, one, other):
        assert function() == (inspect.getsource(function), asking)
    for depth in (0, 3, 1, 3, 0):
        assert deeper(depth) == (inspect.getsource(deeper), asking)
    # A frame more or less is another place, though its innermost frames are the same.
    (calling, _) = asks()
    assert "calling, _" in calling


def test_a_client_that_registers_again_has_its_source_looked_for_once_too(
    client: Client, register: Register, reads: list[object]
) -> None:
    for _ in range(2):
        register(computation__code__frames=1)
        reads.clear()
        client._get_computation_code(nframes=1)
        assert len(reads) == 1


def submit_theirs(client: Client) -> None:
    # What is around a call of ours is told: this is not.
    # Not pure: what another client has asked for, and has not yet let go, would not run again.
    client.submit(lambda: "of another client", pure=False).result()


# Whoever has set it may look at it on Dask's dashboard, which keeps it on the cluster.
@pytest.mark.parametrize("dasks_own_setting", [0, 2])
def test_no_code_is_told_of_clients_that_did_not_register_or_refuse_it(
    client: Client,
    cluster: LocalCluster,
    register: Register,
    recorder: Recorder,
    dasks_own_setting: int,
) -> None:
    register()
    with (
        dask.config.set({"distributed.diagnostics.computations.nframes": dasks_own_setting}),
        Client(cluster) as other,
        Client(cluster) as refusing,
    ):
        daskscope.register(refusing, token=TOKEN, computation__code__transmit=False)
        for one in (other, refusing):
            submit_theirs(one)
    client.submit(str, "of the one that registered", pure=False).result()

    theirs, them, ours = recorder.wait_for(
        lambda: (rows := list(recorder.computations().values()))[2:] and rows, "all three"
    )
    # What was refused is told as such.
    assert [theirs.frames, them.frames] == [(), None]
    assert ours.frames
    recorder.wait_for(lambda: b"of the one that registered" in recorder.bytes, "our code")
    assert b"of another " + b"client" not in recorder.bytes


def test_a_client_that_registers_again_can_refuse(client: Client, register: Register) -> None:
    register()
    register(computation__code__transmit=False)
    assert client._get_computation_code is Client._get_computation_code


def read_here(client: Client) -> Any:
    # far before
    # three before
    # two before
    # one before
    (source,) = client._get_computation_code(nframes=1)
    # one after
    # two after
    # three after
    # far after
    return source


def test_a_client_sends_the_lines_around_its_call_and_one_more_that_shows_that_there_are_more(
    client: Client, register: Register
) -> None:
    register(computation__code__context_lines=2, computation__code__frames=1)
    source = read_here(client)
    text = source.code.removesuffix("\n").split("\n")
    assert (text[0].strip(), text[-1].strip()) == ("# three before", "# three after")
    assert "client._get_computation_code" in text[source.lineno_relative]
    assert source.lineno_frame == read_here.__code__.co_firstlineno + 5


def test_it_sends_all_where_the_settings_of_others_may_ask_for_more(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(computation__code__context_lines=30)
    with Client(cluster) as other:
        daskscope.register(
            other, token=TOKEN, computation__code__context_lines=2, computation__code__frames=1
        )
        assert read_here(other).code == inspect.getsource(read_here)


def test_and_nothing_where_they_refuse_it(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(computation__code__transmit=False)
    with Client(cluster) as other:
        daskscope.register(other, token=TOKEN)
        assert other._get_computation_code is Client._get_computation_code


@given(
    st.lists(st.text("ab\x0c\r", max_size=3), min_size=1, max_size=12),
    st.integers(0, 12),
    st.integers(0, 5),
    st.integers(1, 20),
    st.booleans(),
)
def test_of_what_it_sends_the_same_is_kept_as_of_all(
    lines: list[str], called: int, context: int, max_bytes: int, ends: bool
) -> None:
    whole = SourceCode("\n".join(lines) + "\n" * ends, 100, called, "a.py")
    sent = frame_source.around(whole, context + 1)
    of_sent, of_whole = (
        cut(it.code, it.lineno_frame, it.lineno_relative, it.filename, context, max_bytes)
        for it in (sent, whole)
    )
    assert of_sent == of_whole


# --- what else is in the user's process -----------------------------------------------------------


class Reader:
    """What :func:`calling_code.send_calling_code` needs of a client."""

    _get_computation_code = staticmethod(Client._get_computation_code)


def code_read(source: str, file: str, names: dict[str, Any], frames: int = 2) -> Any:
    """Run ``source`` as that file with these globals. Return what a client reads there."""
    client, drops = Reader(), {}  # type: ignore[var-annotated]
    calling_code.send_calling_code(client, frames, 10, drops)  # type: ignore[arg-type]
    names["client"] = client
    # Dask leaves pytest's own files out, and those in its temporary folders with them.
    with dask.config.set({"distributed.diagnostics.computations.ignore-files": []}):
        exec(compile(source, file, "exec"), names)
    assert not drops
    return names["read"]


HERE = "read = client._get_computation_code(nframes=0)\n"
IN_A_FUNCTION = """\
def inside():
    text = '''
    of two lines'''
    return client._get_computation_code(nframes=0)
read = inside()
"""


class Unequal(dict[str, Any]):
    """Globals of another kind."""

    def get(self, *_: Any) -> Any:
        raise AssertionError("asked for one of them")


@pytest.mark.parametrize("names", [{}, {"__name__": None}, {"__name__": 3}, Unequal()])
@pytest.mark.parametrize("source", [HERE, IN_A_FUNCTION])
def test_code_of_a_bare_namespace_is_read_or_not_known(
    tmp_path: Path, source: str, names: dict[str, Any]
) -> None:
    file = tmp_path / "rules.py"
    assert code_read(source, "<string>", names) == ()
    file.write_text(source)
    assert code_read(source, str(file), names)[-1].filename == str(file)


def test_the_text_of_the_command_line_is_not_taken_for_that_of_other_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As Python 3.13 does for ``python -c``.
    command = (8, None, ["import that\n"], "<string>")
    monkeypatch.setitem(linecache.cache, "<string>", command)
    assert code_read(HERE, "<string>", {"__name__": "rules"}) == ()
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    names = sys.modules["__main__"].__dict__
    assert code_read(HERE, "<string>", names)[-1].code == "import that\n"
    assert code_read(f"str(1)\n{HERE}", "<string>", names) == ()  # it has no second line


@pytest.mark.parametrize(
    "edited",
    [
        IN_A_FUNCTION.replace("lines'''", "lines"),  # a text that does not end
        "",
        "def inside():\n        pass\n    pass\n",
        "# coding: nothing\n",
        b"\xff\xfe def inside()",
        b"\0",
        None,  # deleted
        "a folder",
    ],
)
def test_code_of_a_file_that_was_edited_or_deleted_meanwhile_is_not_known(
    tmp_path: Path, edited: str | bytes | None
) -> None:
    file = tmp_path / "edited.py"
    if edited == "a folder":
        file.mkdir()
    elif isinstance(edited, str):
        file.write_text(edited)
    elif edited is not None:
        file.write_bytes(edited)
    for frame in code_read(IN_A_FUNCTION, str(file), {"__name__": "__main__"}):
        assert "client" not in frame.code


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_no_pipe_is_read(tmp_path: Path) -> None:
    file = tmp_path / "script"
    os.mkfifo(file)
    # Nobody writes into it: to read it would wait for ever.
    assert code_read(HERE, str(file), {}) == ()


@pytest.mark.parametrize("file", ["<a>", "<a", "", ".", "script\udce9.py"])
def test_files_may_be_called_anything(file: str) -> None:
    assert code_read(HERE, file, {}) == ()


def test_a_file_whose_name_is_no_text_is_called_by_what_is(tmp_path: Path) -> None:
    file = tmp_path / "script\udce9.py"
    try:
        file.write_text(HERE)
    except (OSError, UnicodeError):
        pytest.skip("this file system has no such names")
    (frame,) = code_read(HERE, str(file), {}, frames=1)
    assert frame.filename == str(tmp_path / "script?.py")


class Lazy(ModuleType):
    """A module that loads what it needs once something is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise ImportError(f"optional dependency is not installed (asked for {name})")


class Exits(ModuleType):
    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(f"asked for {name}")


@pytest.mark.parametrize("kind", [Lazy, Exits, lambda name: None, lambda name: object()])
def test_no_module_is_asked_for_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[str], Any]
) -> None:
    monkeypatch.setitem(sys.modules, "odd_for_tests", kind("odd_for_tests"))
    file = tmp_path / "script.py"
    file.write_text(IN_A_FUNCTION)
    names = {"__name__": "odd_for_tests"}
    assert "client" in code_read(IN_A_FUNCTION, str(file), names)[-1].code


def test_ipython_is_not_imported_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert code_read(HERE, "<string>", {}) == ()


def test_code_in_a_zip_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("zipped_for_tests.py", IN_A_FUNCTION.replace("read =", "read = lambda:"))
    monkeypatch.syspath_prepend(str(packed))
    module = importlib.import_module("zipped_for_tests")
    monkeypatch.delitem(sys.modules, module.__name__)
    calling_code.send_calling_code(client := Reader(), 2, 10, {})  # type: ignore[arg-type]
    module.client = client  # type: ignore[attr-defined]
    with dask.config.set({"distributed.diagnostics.computations.ignore-files": []}):
        frames = module.read()
    assert "client" in frames[-1].code
    assert frames[-1].filename.startswith(str(packed))


def test_a_notebooks_cell_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = "/tmp/ipykernel_123/456.py"
    entry = (len(HERE), None, HERE.splitlines(keepends=True), cell)
    monkeypatch.setitem(linecache.cache, cell, entry)
    (frame,) = code_read(HERE, cell, {"__name__": "__main__"}, frames=1)
    assert frame.code == HERE


@pytest.mark.parametrize(
    ("cell", "called"),
    [
        ("%%time\ndef fetch(i):\n    return i\nfound = read()", "found = read()"),
        ("%%timeit -n1 -r1 -q\nstr(1)\nkeep(read())", "keep(read())"),
        (
            "str(1)\n%timeit -n1 -r1 -q keep(read())",
            "%timeit -n1 -r1 -q keep(read())",
        ),
        ("str(1)\n%time found = read()\nstr(2)", "%time found = read()"),
        ("str(1)\n%prun -q keep(read())\nstr(2)", "keep(read())"),
        ("%%prun -q\nstr(1)\nkeep(read())", "keep(read())"),
        ("%%prun -q str(1)\ndef call():\n    keep(read())\ncall()", "keep(read())"),
        ("str(1)\nexec('keep(read())')", ""),
    ],
    ids=["%%time", "%%timeit", "%timeit", "%time", "%prun", "%%prun", "%%prun function", "exec"],
)
def test_what_a_notebook_times_has_its_own_line(cell: str, called: str) -> None:
    assert _code_in_a_notebook(cell) == called


# The real one wants distutils, which Python has no more, to become a magic.
_MEMORY_PROFILER = """
def _func_exec(stmt, ns):
    exec(stmt, ns)

def memit(line, cell=None):
    _func_exec(line if cell is None else cell, ns)
"""


@pytest.mark.parametrize("cell", ["str(1)\n%memit keep(read())", "%%memit\nstr(1)\nkeep(read())"])
def test_what_memory_profiler_measures_has_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: str
) -> None:
    (tmp_path / "site-packages").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    (tmp_path / "site-packages" / "memory_profiler.py").write_text(_MEMORY_PROFILER)
    profiler = importlib.import_module("memory_profiler")
    monkeypatch.delitem(sys.modules, profiler.__name__)

    def load(shell: Any) -> None:
        profiler.ns = shell.user_ns  # type: ignore[attr-defined]
        shell.register_magic_function(profiler.memit, "line_cell")

    assert _code_in_a_notebook(cell, load) == "keep(read())"


def _code_in_a_notebook(cell: str, load: Callable[[Any], object] = bool) -> str:
    """Return the line of the call to ``read`` in a cell, and nothing where there is no code."""
    shells = pytest.importorskip("IPython.core.interactiveshell", reason="IPython is not installed")
    client = Reader()
    calling_code.send_calling_code(client, 1, None, {})  # type: ignore[arg-type]
    kept: list[Any] = []
    names = {"read": client._get_computation_code, "keep": kept.append, "found": None}
    shell = shells.InteractiveShell.instance(user_ns=names)
    load(shell)
    try:
        assert shell.run_cell(cell, store_history=True).success
    finally:
        shells.InteractiveShell.clear_instance()
    (frames,) = kept or [shell.user_ns["found"]]
    lines = [frame.code.splitlines()[frame.lineno_relative].strip() for frame in frames]
    return "\n".join(lines)


def test_where_the_stack_is_used_up_the_graph_goes_without_its_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Reader()
    calling_code.send_calling_code(client, 2, 10, {})  # type: ignore[arg-type]

    def deepest(read: Callable[..., object]) -> int:
        def descend(depth: int) -> int:
            try:
                return descend(depth + 1)
            except RecursionError:
                read(nframes=0)
                return depth

        return descend(1)

    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    # In threads, whose stacks begin at one depth.
    with ThreadPoolExecutor(1) as threads:
        reached = [
            threads.submit(deepest, read).result()
            for read in (
                Client._get_computation_code,
                client._get_computation_code,
            )
        ]
    assert reached[0] == reached[1]
    assert not said


def test_whatever_goes_wrong_is_counted_and_the_graph_goes_without_its_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drops: dict[str, int] = {}
    client = Reader()
    calling_code.send_calling_code(client, 2, 10, drops)  # type: ignore[arg-type]
    with dask.config.set({"distributed.diagnostics.computations.ignore-modules": ["("]}):
        assert client._get_computation_code(nframes=0) == ()
    assert drops == {"internal error": 1}
    assert client._get_computation_code(nframes=0)


_RUN = """
def runctx(cmd):
    found = []
    exec(compile(cmd, "<string>", "exec"), {"look": lambda: found.append(lines(1))})
    return found[0]
"""


def test_a_string_is_read_where_a_profiler_runs_it_and_it_is_no_longer_than_a_file_may_be() -> None:
    def lines(above: int) -> list[str]:
        return frame_source.lines_of(sys._getframe(above + 1))

    profiler: dict[str, Any] = {"__name__": "line_profiler.profiler_mixin", "lines": lines}
    users: dict[str, Any] = {"__name__": "profiles", "lines": lines}
    for namespace in (profiler, users):
        exec(compile(_RUN, "profiler.py", "exec"), namespace)
    runctx = profiler["runctx"]
    assert users["runctx"]("look()\n") == []
    assert runctx("look()\n") == ["look()\n"]
    assert runctx("look()\n#" + "x" * frame_source.MAX_FILE) == []
