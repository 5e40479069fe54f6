"""How programs begin: with a client that registers, or does not."""

from __future__ import annotations

# What Dask says as connections break at the end is another thing each time. Event loops say what
# failed on them: that must be nothing of daskscope's.
_QUIET = """
import logging as _logging
_logging.getLogger("distributed").setLevel(_logging.CRITICAL + 1)
def _is_daskscopes(record):
    step = record.exc_info[2] if record.exc_info else None
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__")).partition(".")[0] == "daskscope":
            return True
        step = step.tb_next
    return False
for _name in ("asyncio", "tornado.application", "tornado.general"):
    _logging.getLogger(_name).addFilter(_is_daskscopes)
"""

#: How programs end that cannot be here what their names say.
NOT_AS_NAMED = 99

_REGISTER = f"""
NOT_AS_NAMED = {NOT_AS_NAMED}
import os, sys, warnings
from distributed import Client
{_QUIET}
def register(client):
    if os.environ.get("ENDPOINT"):
        import daskscope
        return daskscope.register(
            client, endpoint=os.environ["ENDPOINT"], token="dsk_programs", interval="100ms"
        )
"""

#: A cluster of threads: the scheduler with the plugin, the worker and the client are all in the
#: program's own process, where they could do the most harm.
LOCAL = (
    _REGISTER
    + """
from distributed import LocalCluster
cluster = LocalCluster(
    processes=False, n_workers=1, threads_per_worker=4, dashboard_address=":0", silence_logs=False
)
client = Client(cluster)
register(client)
"""
)

#: Whatever the program does about it.
BARE = _REGISTER

#: The line between the outputs of two programs.
END = "== the end of a program\n"

#: A cluster as most people start it, whose workers are processes, and one worker more that has
#: warnings as errors from its start. With it run the ``PROGRAMS``, one after another.
PROCESSES = (
    _REGISTER
    + f"""
END, QUIET = {END!r}, {_QUIET!r}
"""
    + """
import dask
from distributed import LocalCluster, Nanny
def run(number, program, names):
    file = os.path.abspath(f"program_{number}.py")
    with open(file, "w") as written:
        written.write(program)
    try:
        exec(compile(program, file, "exec"), names)
    except BaseException as error:
        print("raised", type(error), error)
    for stream in (sys.stdout, sys.stderr):
        stream.write(END)
        stream.flush()
def main():
    dask.config.set({
        "distributed.scheduler.allowed-failures": 0,
        # Or a worker that has just restarted a second time is taken for lost.
        "distributed.deploy.lost-worker-timeout": "1 hour",
        "distributed.nanny.pre-spawn-environ.PYTHONWARNINGS": "as it is when a nanny is made",
    })
    cluster = LocalCluster(
        n_workers=0, threads_per_worker=2, dashboard_address=":0", silence_logs=False,
        preload=[QUIET],
    )
    def add(name, of_warnings):
        options = {**cluster.new_spec["options"], "resources": {name: 2}}
        cluster.worker_spec[name] = {"cls": Nanny, "options": options}
        os.environ["PYTHONWARNINGS"] = of_warnings
        cluster.sync(cluster._correct_state)
    with cluster, Client(cluster) as client:
        register(client)
        add("usual", of_warnings="")
        add("strict", of_warnings="error")
        client.wait_for_workers(2, timeout=90)
        known = {"cluster": cluster, "client": client}
        known |= {name: {"resources": {name: 1}} for name in cluster.worker_spec}
        for number, program in enumerate(PROGRAMS):
            run(number, program, {**globals(), **known})
"""
)
