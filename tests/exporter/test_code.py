"""Which lines of the user's code are kept."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import dask.config
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from daskscope import protocol
from daskscope.observe.tasks.code import MAX_CODE, CodeOfGraphs, cut
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.recorder import Recorder

pytestmark = pytest.mark.contract

FILE = "\n".join(f"line {number}" for number in range(1, 101))


def test_the_lines_around_the_call_are_kept() -> None:
    code = cut(FILE, line=50, relative_line=49, file="a.py", context_lines=2, max_bytes=1000)
    assert code.text.splitlines() == ["line 48", "line 49", "line 50", "line 51", "line 52"]
    assert code.first_line == 48
    assert code.cut


def test_a_form_feed_does_not_shift_the_lines() -> None:
    code = cut(
        "a\n\x0c\nb\nc\n", line=3, relative_line=2, file="a.py", context_lines=0, max_bytes=9
    )
    assert (code.first_line, code.text) == (3, "b")


def test_a_short_function_is_kept_whole() -> None:
    code = cut("def f():\n    go()\n", 31, 1, "a.py", 20, 1000)
    assert (code.first_line, code.text, code.cut) == (30, "def f():\n    go()", False)


@settings(deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=50), min_size=1),
    st.integers(0, 200),
    st.integers(0, 30),
    st.integers(1, 400),
)
def test_the_calling_line_is_always_among_what_is_kept_and_never_more_than_allowed(
    lines: list[str], called: int, context: int, max_bytes: int
) -> None:
    text = "\n".join(lines)
    lines = text.removesuffix("\n").split("\n")
    called = min(called, len(lines) - 1)
    code = cut(text, called + 1, called, "a.py", context, max_bytes)
    assert len(code.text.encode()) <= max_bytes
    kept = code.text.split("\n")
    at = called + 1 - code.first_line
    assert 0 <= at < len(kept)
    assert lines[called].startswith(kept[at])


# --- on real clusters -----------------------------------------------------------------------------

#: A script whose call is at module level, where Dask takes the whole file for the code around it.
SCRIPT = (
    """\
import sys
from dask.delayed import delayed
from distributed import Client
import daskscope

client = Client(sys.argv[1])
daskscope.register(client, endpoint=sys.argv[2], token=sys.argv[3], interval="100ms")
"""
    + "".join(f"# far before, {number}\n" for number in range(30))
    + "".join(f"# just before, {number}\n" for number in range(20))
    + """\
for number in range(2):
    delayed(sum)([number]).compute()  # the call
"""
    + "".join(f"# just after, {number}\n" for number in range(20))
    + "".join(f"# far after, {number}\n" for number in range(30))
    + "client.close()\n"
)


@pytest.fixture
def script() -> Iterator[Path]:
    # Not in pytest's folder: Dask takes no code from files there.
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a_script.py"
        path.write_text(SCRIPT)
        yield path


def test_of_a_script_only_the_lines_around_its_call_travel_and_only_once(
    client: Client, recorder: Recorder, script: Path
) -> None:
    address = client.scheduler_info()["address"]
    subprocess.run([sys.executable, script, address, recorder.url, TOKEN], timeout=60, check=True)

    recorder.wait_for(lambda: _ended(recorder) == 2, "two computations")
    (frame,) = {row.frames[-1] for row in recorder.computations().values() if row.frames}
    assert frame.file == str(script)
    code = recorder.wait_for(lambda: recorder.code().get(frame.code or ""), "the code")
    lines = SCRIPT.split("\n")
    assert lines[frame.line - 1].endswith("# the call")
    assert code.cut
    assert code.text.split("\n") == lines[frame.line - 21 : frame.line + 20]
    assert code.text.split("\n")[frame.line - code.first_line].endswith("# the call")
    assert b"far before" not in recorder.bytes
    assert b"far after" not in recorder.bytes

    beats = len(recorder.beats)
    recorder.wait_for(lambda: len(recorder.beats) >= beats + 2, "two more beats")
    assert [sent.hash for beat in recorder.beats for sent in beat.code] == [frame.code]


def _ended(recorder: Recorder) -> int:
    return sum(row.status == "finished" for row in recorder.computations().values())


def test_code_that_is_not_asked_for_is_not_sent(
    client: Client, register: Register, recorder: Recorder
) -> None:
    recorder.asks_for_code = False
    register(profile__transmit=False)
    client.submit(sum, [1, 2]).result()  # the line that nobody asks for

    frames = recorder.computation().frames
    assert frames is not None
    assert frames[-1].code is not None
    beats = len(recorder.beats)
    recorder.wait_for(lambda: len(recorder.beats) >= beats + 3, "three more beats")
    assert [beat.code for beat in recorder.beats if beat.code] == []
    assert b"nobody asks for" not in recorder.bytes
    # It was there to be had.
    recorder.asks_for_code = True
    client.submit(sum, [3, 4]).result()

    def code() -> protocol.Code | None:
        return next((c for c in recorder.code().values() if "nobody asks for" in c.text), None)

    recorder.wait_for(code, "the code around")


def test_no_frame_is_ours_whatever_modules_the_user_has_dask_ignore(
    client: Client, register: Register, recorder: Recorder
) -> None:
    ignored = "distributed.diagnostics.computations.ignore-modules"
    with dask.config.set({ignored: [r"distributed(\.|$)", r"dask(\.|$)"]}):
        register()
        client.submit(str, 1, pure=False).result()
        frames = recorder.computation().frames
    assert frames is not None
    assert frames[-1].file == __file__


def test_a_line_whose_source_has_changed_has_other_code() -> None:
    code = CodeOfGraphs(context_lines=20, max_bytes=1000, drops=Counter())
    (before,) = code.frames([("go(1)\n", 1, 0, "cell")])
    (again,) = code.frames([("go(1)\n", 1, 0, "cell")])
    (after,) = code.frames([("go(2)\n", 1, 0, "cell")])
    assert before == again
    assert after.code != before.code
    assert [sent.text for sent in code.take()] == ["go(1)", "go(2)"]


def test_what_found_no_room_is_looked_at_again_when_it_comes_back() -> None:
    drops: Counter[str] = Counter()
    code = CodeOfGraphs(context_lines=20, max_bytes=1000, drops=drops)
    for line in range(1, MAX_CODE + 1):
        code.frames([("go()\n", line, 0, "a.py")])
    late = [("late()\n", MAX_CODE + 1, 0, "a.py")]
    assert code.frames(late)[0].code is None
    assert drops["code"] == 1
    code.take()
    assert code.frames(late)[0].code is not None
