"""Ways in which programs are started, each with a program that says what is peculiar to it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipapp
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.programs import preludes

#: Raises, warns, asserts and ends with the exception of a task. Where it cannot find its packages
#: by itself it is told where they are.
PROGRAM = f"""
import os, sys
sys.path.extend(filter(None, os.environ.get("PATHS", "").split(os.pathsep)))
{preludes.BARE}
def check(x):
    "A text about it."
    assert x, "of a task"
    return x, check.__doc__, __debug__, __name__
def fail():
    raise ValueError("of a task")
if __name__ == "__main__":
    from distributed import LocalCluster
    with LocalCluster(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0",
        silence_logs=False,
    ) as cluster, Client(cluster) as client:
        register(client)
        print(client.submit(check, 1).result(), repr(client.submit(check, 0).exception()))
        print(client.gather(client.map(abs, range(-3, 0))))
        print(sys.flags, sys.warnoptions, sys.argv[1:], type(sys.modules["__main__"].__spec__))
        try:
            warnings.warn("of the program", stacklevel=1)
        except UserWarning as error:
            print("raised", error)
        client.submit(fail).result()
"""

_PROCESSES = f"""
import multiprocessing
{preludes.BARE}
def compute(address, number):
    with Client(address) as client:
        register(client)
        return client.submit(abs, number).result()
if __name__ == "__main__":
    from distributed import LocalCluster
    with LocalCluster(
        processes=False, protocol="tcp", n_workers=1, threads_per_worker=2,
        dashboard_address=":0", silence_logs=False,
    ) as cluster, Client(cluster) as client:
        register(client)
        print(client.submit(abs, -1).result())
        context = multiprocessing.get_context(METHOD)
        with context.Pool(2) as pool:
            address = cluster.scheduler_address
            print(pool.starmap(compute, [(address, -2), (address, -3)]))
        process = context.Process(target=sys.exit, args=(7,))
        process.start()
        process.join()
        print(process.exitcode, client.submit(abs, -4).result())
    sys.exit(5)
"""

#: The scheduler is a process of its own, with a preload; so is the worker.
APART = f"""
import subprocess, time
{preludes.BARE}
def fail():
    raise ValueError("of a task")
def start(*command):
    return subprocess.Popen([sys.executable, "-m", "dask", *command])
endpoint = os.environ["ENDPOINT"]
os.environ.update(DASK_DASKSCOPE__TOKEN="dsk_programs", DASK_DASKSCOPE__ENDPOINT=endpoint)
os.environ["DASK_DISTRIBUTED__LOGGING__DISTRIBUTED"] = "warning"
preload = ["--preload", "daskscope"] if endpoint else []
if "DIFFERS_FROM_TRUTH" in os.environ:  # its setting goes unheard beside an option
    preload = ["--preload", "tests.exporter.counted_preload", *preload]
file = ["--scheduler-file", "scheduler.json", "--dashboard-address", ":0"]
scheduler = start("scheduler", "--host", "127.0.0.1", "--port", "0", *file, *preload)
worker = start("worker", *file, "--nthreads", "2", "--no-nanny")
with Client(scheduler_file="scheduler.json", timeout=90) as client:
    register(client)
    print(client.submit(abs, -1).result(), repr(client.submit(fail).exception()))
    print(client.gather(client.map(abs, range(-3, 0))))
for process in (worker, scheduler):
    process.terminate()
    print(process.wait(90))
sys.exit(4)
"""


@dataclass(frozen=True)
class Start:
    """A program, how Python is called for it, and how it has to end without daskscope."""

    text: str
    options: tuple[str, ...] = ()
    how: str = "file"
    code: int = 1
    #: A file descriptor that is closed from the start: the next file or socket gets its number.
    closed: int | None = None

    def begin(self, folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start it in ``folder``, where its output goes."""
        file, given = folder / "program.py", b""
        file.write_text(self.text)
        called = [str(file), "an argument"]
        if self.how == "-c":
            called = ["-c", self.text, "an argument"]
        elif self.how == "stdin":
            called, given = ["-", "an argument"], self.text.encode()
        elif self.how == "zipapp":
            (folder / "app").mkdir()
            file.rename(folder / "app" / "__main__.py")
            zipapp.create_archive(folder / "app", folder / "app.pyz")
            called = [str(folder / "app.pyz"), "an argument"]
        elif self.how == "module":
            called = ["-m", "program", "an argument"]
        with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, *self.options, *called],
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                preexec_fn=None if self.closed is None else partial(os.close, self.closed),
            )
        assert process.stdin is not None
        process.stdin.write(given)
        process.stdin.close()
        return process


#: What has nothing to do with each other is in one start: to start takes longer than all else.
STARTS = {
    "-OO": Start(PROGRAM, ("-OO",)),  # with all that -O leaves out
    "-W error, from stdin": Start(PROGRAM, ("-W", "error"), how="stdin"),
    "-I -S -c": Start(PROGRAM, ("-I", "-S"), how="-c"),
    "-m": Start(PROGRAM, how="module"),
    "a zipapp, no standard input": Start(PROGRAM, how="zipapp", closed=0),
    "no standard error": Start(PROGRAM, closed=2),
    "processes by spawn": Start(f"METHOD = 'spawn'\n{_PROCESSES}", code=5),
    "processes by fork": Start(f"METHOD = 'fork'\n{_PROCESSES}", code=5),
    "a scheduler of its own": Start(APART, code=4),
}
