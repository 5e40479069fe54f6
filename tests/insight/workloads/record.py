"""Runs workloads and keeps what they sent: ``python -m tests.insight.workloads.record``.

Names of workloads may follow. As ``tests/browser/fixtures``: through a proxy, and without what
would tell of this machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.browser.fixtures.record import (
    Proxy,
    anonymous,
    telltales,
    telltales_of_here,
    wait_for_beats,
)
from tests.browser.fixtures.tape import Sent, save
from tests.insight.workloads.kinds import KINDS, RIGHT, TAPES, UNCOUNTED, WRONG
from tests.service_process import ServiceProcess

_PATIENCE = 240.0


@dataclass(frozen=True, slots=True)
class Run:
    """What a workload's cluster sent, and whether the service's numbers are those of the
    independent count: RIGHT, WRONG or UNCOUNTED.
    """

    tape: list[Sent]
    numbers: str


def record(name: str, interval: int) -> Run:
    """Run a workload at an interval, with a service of its own."""
    ends = KINDS[name].ends
    with (
        tempfile.TemporaryDirectory(prefix="record-") as folder,
        ServiceProcess(Path(folder)) as service,
        Proxy(service.url) as proxy,
    ):
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.insight.workloads.programs", name,
             f"http://127.0.0.1:{proxy.server_port}", service.url, service.token(), str(interval)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={k: v for k, v in os.environ.items() if not k.startswith(("DASK", "OTEL"))}
            | {"LOGNAME": "ada", "USER": "ada"},
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            said = process.stdout.readline().strip()
            assert said in (RIGHT, WRONG, UNCOUNTED), f"{name} did not end well"
            if ends == "closed":
                process.stdin.close()
                process.wait(_PATIENCE)
            else:
                wait_for_beats(proxy, 2)
            tape = list(proxy.tape)
        finally:
            with suppress(ProcessLookupError):  # it left nothing behind
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            proxy.shutdown()
    return Run(tape, said)


def main(wanted: list[str]) -> None:
    """Record these workloads, by default all, at all their intervals."""
    for name in wanted or KINDS:
        for interval in KINDS[name].intervals:
            names = telltales_of_here(Path(__file__).parent) | {"tests.insight.workloads.": ""}
            run = record(name, interval)
            if run.numbers == WRONG:
                raise SystemExit(f"{name}: the service's numbers are not those that were counted")
            tape = anonymous(run.tape, names)
            if found := telltales(tape):
                raise SystemExit(f"{name} tells of this machine: {sorted(found)}")
            file = save(f"{name}.{interval}", tape, TAPES)
            print(
                f"{name}.{interval}: {len(tape)} requests, {file.stat().st_size} bytes", flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1:])
