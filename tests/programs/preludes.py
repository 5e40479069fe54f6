"""How programs begin: with a client that registers, or does not."""

from __future__ import annotations

_REGISTER = """
import os, sys, warnings
import logging as _logging
from distributed import Client
# What Dask says as connections break at the end is another thing each time.
_logging.getLogger("distributed").setLevel(_logging.CRITICAL + 1)
def _is_daskscopes(record):
    step = record.exc_info[2] if record.exc_info else None
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__")).partition(".")[0] == "daskscope":
            return True
        step = step.tb_next
    return False
# Event loops say what failed on them: that must be nothing of daskscope's.
for _name in ("asyncio", "tornado.application", "tornado.general"):
    _logging.getLogger(_name).addFilter(_is_daskscopes)
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
