"""How programs end that have a cluster in their process: as they did, and with a goodbye."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.exporter import counted_preload
from tests.exporter.conftest import TOKEN
from tests.exporter.recorder import Recorder
from tests.forked import ForkedProcess
from tests.patience import stretched, wait_until

_BEGIN = """
import code, os, signal, sys, time
import daskscope
from distributed import Client, LocalCluster

# Programs inherit it, and nohup has it ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

def begin(name, processes=False):
    cluster = LocalCluster(
        n_workers=1, threads_per_worker=1, processes=processes, dashboard_address=":0"
    )
    client = Client(cluster)
    daskscope.register(client, endpoint={url!r}, token={token!r}, interval="1s", name=name)
    return client, client.map(abs, range(3))

if __name__ == "__main__":
"""

#: How each ends, its exit status, and whether it says goodbye. Some have workers in processes of
#: their own, which have to end then, too.
ENDS: dict[str, tuple[str, int, bool]] = {
    "end": ("held = begin('end', processes=True)", 0, True),
    "exit": ("held = begin('exit'); sys.exit(3)", 3, True),
    "exception": ("held = begin('exception'); raise KeyError('nobody')", 1, True),
    # As consoles of editors are made.
    "console": ("code.InteractiveConsole(globals()).interact(banner='')", 0, True),
    "handler": (
        "signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number)); "
        "held = begin('handler'); print('ready', flush=True); time.sleep(600)",
        128 + signal.SIGTERM,
        True,
    ),
    "signal": (
        "held = begin('signal', processes=True); print('ready', flush=True); time.sleep(600)",
        -signal.SIGTERM,
        False,
    ),
    # The terminal that it was started from is closed.
    "hangup": (
        "held = begin('hangup'); print('ready', flush=True); time.sleep(600)",
        -signal.SIGHUP,
        False,
    ),
    "exec": (
        "held = begin('exec'); os.execv(sys.executable, [sys.executable, '-c', ''])",
        0,
        False,
    ),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_a_program_ends_as_it_would_and_says_goodbye_where_it_still_runs_python(
    recorder: Recorder, tmp_path: Path
) -> None:
    programs: dict[str, ForkedProcess] = {}
    typed = tmp_path / "typed"
    typed.write_text("held = begin('console')\nexit()\n")
    try:
        with ExitStack() as opened:
            errors = opened.enter_context((tmp_path / "errors").open("w"))
            for name, (how, _, _) in ENDS.items():
                script = tmp_path / f"program_{name}.py"
                begin = _BEGIN.format(url=recorder.url, token=TOKEN)
                script.write_text(f"{begin}    {how}\n")
                given = opened.enter_context(open(typed if name == "console" else os.devnull))
                output = opened.enter_context((tmp_path / f"output_{name}").open("w"))
                programs[name] = ForkedProcess(
                    [str(script)],
                    os.environ | counted_preload.beside(tmp_path / name),
                    (given.fileno(), output.fileno(), errors.fileno()),
                    "python",
                )
        sent = {"signal": signal.SIGTERM, "handler": signal.SIGTERM, "hangup": signal.SIGHUP}
        for name, number in sent.items():
            said = tmp_path / f"output_{name}"
            wait_until(said.read_text, what=f"that {name} is ready")
            programs[name].send_signal(number)
        for program in programs.values():
            program.wait(stretched(120.0))
    finally:
        for program in programs.values():
            program.kill()
    assert {name: program.returncode for name, program in programs.items()} == {
        name: status for name, (_, status, _) in ENDS.items()
    }
    goodbyes = {beat.cluster.name for beat in recorder.beats if beat.phase == "stop"}
    assert goodbyes == {name for name, (_, _, says_it) in ENDS.items() if says_it}
    # The others run no Python at their end, so nothing can be compared in them.
    for name in goodbyes:
        counted_preload.assert_equal(tmp_path / name)
    # All of them lived in the process of their client, which the service is told.
    assert {beat.cluster.name for beat in recorder.beats} == set(ENDS)
    assert all(beat.cluster.in_client for beat in recorder.beats)
