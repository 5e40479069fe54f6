"""Programs that have the cluster in their own process. Each is what its name says."""

from __future__ import annotations

#: With a cluster of threads: the plugin, its threads and hooks are in the user's process.
LOCAL = {
    "a handler at the root": """
import logging
logging.basicConfig(stream=sys.stdout, format="%(name)s %(message)s", level=logging.WARNING)
logging.getLogger("users").warning("of %s", "mine")
print(client.submit(abs, -1).result())
client.close(); cluster.close()
""",
    "basicConfig works as the first one does": """
import logging
client.submit(abs, -1).result()
print([type(h).__name__ for h in logging.root.handlers])
logging.basicConfig(stream=sys.stdout)
print([type(h).__name__ for h in logging.root.handlers], logging.root.level)
""",
    "what records hold": """
import logging, logging.handlers
memory = logging.handlers.MemoryHandler(100, target=None, flushOnClose=False)
logger = logging.getLogger("users"); logger.addHandler(memory)
logger.warning("one %d", 1, extra={"mine": 2})
print([sorted(set(r.__dict__) - set(logging.makeLogRecord({}).__dict__)) for r in memory.buffer])
""",
    "how often a record is made text of": """
import logging
class Arg:
    n = 0
    def __str__(self):
        Arg.n += 1
        return "arg"
logging.getLogger("users").addHandler(logging.StreamHandler(sys.stdout))
logging.getLogger("users").warning("of %s", Arg())
print(Arg.n)
""",
    "a record that nobody makes text of": """
import logging
class Arg:
    def __str__(self):
        print("made text")
        return "arg"
logger = logging.getLogger("users"); logger.addHandler(logging.NullHandler()); logger.propagate = False
logger.warning("of %s", Arg())
def f():
    logger.warning("of %s", Arg())
client.submit(f).result()
""",
    "arguments that raise": """
import logging
class Arg:
    def __str__(self):
        raise RuntimeError("no text")
logging.raiseExceptions = False
logging.getLogger("users").addHandler(logging.StreamHandler(sys.stdout))
logging.getLogger("users").warning("of %s", Arg())
logging.getLogger("users").warning("too %s %s", 1)
print("went on")
""",
    "a handler that raises": """
import logging
class Raises(logging.Handler):
    def emit(self, record):
        raise KeyError("of the handler")
logging.getLogger("users").addHandler(Raises())
try:
    logging.getLogger("users").warning("x")
except KeyError as error:
    print(repr(error))
""",
    "logging.shutdown": """
import logging
logging.getLogger("users").addHandler(logging.StreamHandler(sys.stdout))
logging.shutdown()
logging.getLogger("users").warning("after")
print(client.submit(abs, -1).result())
""",
    "warnings that are captured": """
import logging
logging.captureWarnings(True)
logging.getLogger("py.warnings").addHandler(logging.StreamHandler(sys.stdout))
logging.getLogger("py.warnings").handlers[0].setFormatter(logging.Formatter("%(name)s"))
warnings.warn("mine")
print(client.submit(abs, -1).result())
""",
    "a logger of its own kind": """
import logging
class Mine(logging.Logger):
    def callHandlers(self, record):
        print("calls", record.getMessage())
        super().callHandlers(record)
logging.setLoggerClass(Mine)
logging.getLogger("users.own").warning("x")
logging.setLoggerClass(logging.Logger)
print(client.submit(abs, -1).result())
""",
    "logging patched": """
import logging
original = logging.Logger.callHandlers
def patched(self, record):
    if self.name == "users":
        print("patched")
    original(self, record)
logging.Logger.callHandlers = patched
logging.getLogger("users").warning("x")
client.close(); cluster.close()
logging.getLogger("users").warning("y")
print(logging.Logger.callHandlers is patched)
""",
    "logging afterwards": """
import logging
print(client.submit(abs, -1).result())
client.close(); cluster.close()
print(logging.Logger.callHandlers.__module__, logging.Logger.callHandlers.__qualname__)
loggers = map(logging.getLogger, list(logging.root.manager.loggerDict))
print([logger.name for logger in loggers if "daskscope" in repr(logger.filters)])
""",
    "it ends without closing": """
print(client.submit(abs, -1).result())
""",
    "it fails without closing": """
client.submit(lambda: 1 / 0).result()
""",
    "it exits inside": """
with cluster, client:
    sys.exit(client.submit(abs, -9).result())
""",
    "functions at exit": """
import atexit
atexit.register(lambda: print(client.status, cluster.status.name))
""",
    "threads that are not daemons": """
import threading
print([t.name for t in threading.enumerate() if not t.daemon])
""",
    "it forks with multiprocessing": """
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(abs, [-1, -2]))
""",
    "its tasks warn": """
warnings.simplefilter("always")
warnings.showwarning = lambda message, category, file, line, *_: print(category.__name__, message)
def f():
    warnings.warn("of a task")
    return 1
print(client.submit(f).result())
""",
    "warnings as errors": """
warnings.simplefilter("error")
print(client.submit(abs, -1).result(), client.submit(lambda: 1 / 0).exception())
client.close(); cluster.close()
""",
    "signals are as they were": """
import signal
print([(n, str(signal.getsignal(n))) for n in sorted(signal.valid_signals()) if callable(signal.getsignal(n))])
""",
    "hooks are as they were": """
import threading
print(sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__, sys.displayhook is sys.__displayhook__, sys.unraisablehook is sys.__unraisablehook__)
print(sys.gettrace(), sys.getprofile(), sys.getrecursionlimit(), warnings.showwarning.__module__, len(warnings.filters) > 0)
""",
    "the cluster is closed first": """
cluster.close()
try:
    client.submit(abs, -1).result(timeout=3)
except BaseException as error:
    print(type(error).__name__)
""",
    "a worker that restarts": """
print(client.submit(abs, -1).result())
cluster.scale(2)
client.wait_for_workers(2, timeout=60)
cluster.scale(1)
print(client.submit(abs, -2).result())
""",
    "actors, clients in tasks": """
from distributed import worker_client
class A:
    def f(self):
        return 1
def g():
    with worker_client() as inner:
        return inner.submit(abs, -5).result()
print(client.submit(A, actor=True).result().f().result(), client.submit(g).result())
""",
}

#: With the cluster made by an asynchronous program, in its own event loop.
BARE = {
    "a Client whose methods are no functions": """
import functools
from distributed import LocalCluster
original = Client._graph_to_futures
class Bound:
    # As libraries that instrument others bind their methods: it is made of more than two.
    def __init__(self, function, owner, more):
        self.__func__, self.__self__ = function, owner
    def __call__(self, *args, **kwargs):
        print("instrumented")
        return self.__func__(self.__self__, *args, **kwargs)
class Instrumented:
    def __init__(self, function):
        self.function = function
    def __get__(self, owner, kind=None):
        return self if owner is None else Bound(self.function, owner, kind)
if __name__ == "__main__":
    for kind in (Instrumented, functools.partialmethod):
        Client._graph_to_futures = kind(original)
        with (
            LocalCluster(processes=False, n_workers=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            register(client)
            print(client.submit(abs, -1).result())
""",
    "an asynchronous cluster": """
import asyncio
from distributed import LocalCluster
async def main():
    async with LocalCluster(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0", asynchronous=True
    ) as cluster, Client(cluster, asynchronous=True) as client:
        registering = register(client)
        if registering is not None:
            await registering
        print(await client.submit(abs, -1))
        loop = asyncio.get_running_loop()
        print(loop.get_debug(), len(asyncio.all_tasks()) > 0)
asyncio.run(main())
""",
    "OpenTelemetry of its own": """
from distributed import LocalCluster, worker_client
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
def seen():
    return sorted(baggage.get_all().items()), context.get_value("mine")
def nested():
    with worker_client() as inner:
        return seen(), inner.submit(seen, pure=False).result()
context.attach(baggage.set_baggage("of", "the program", context.set_value("mine", "too")))
tracer = trace.get_tracer("mine")
with tracer.start_as_current_span("outer") as outer:
    cluster = LocalCluster(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0", silence_logs=False
    )
    client = Client(cluster)
    register(client)
    with tracer.start_as_current_span("inner") as inner:
        print(client.submit(seen, pure=False).result(), client.submit(nested, pure=False).result())
        print(trace.get_current_span() is inner, seen())
    print(trace.get_current_span() is outer)
print(client.submit(seen, pure=False).result())
client.close(); cluster.close()
print(trace.get_current_span().get_span_context().is_valid, seen())
""",
    "no home from the start": """
import pwd
from distributed import LocalCluster
for name in ("HOME", "XDG_STATE_HOME"):
    os.environ.pop(name, None)
def getpwuid(number):
    raise KeyError(number)
pwd.getpwuid = getpwuid
with LocalCluster(
    processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=False
) as cluster, Client(cluster) as client:
    register(client)
    print(client.submit(abs, -1).result())
""",
    "folders that no one can make, from the start": """
from distributed import LocalCluster
os.environ["HOME"] = os.environ["XDG_STATE_HOME"] = os.path.join(__file__, "state")
with LocalCluster(
    processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=False
) as cluster, Client(cluster) as client:
    os.chdir("/proc")
    register(client)
    print(client.submit(abs, -1).result())
""",
    "folders that may not be written": """
import ctypes
from distributed import LocalCluster
os.mkdir("fixed"); os.chdir("fixed"); os.chmod(".", 0o500)
os.environ["HOME"] = os.environ["XDG_STATE_HOME"] = os.getcwd()
if os.geteuid() == 0:  # whom modes do not bind, but for the capability that this takes away
    libc, version = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0)
    capabilities = (ctypes.c_uint32 * 6)()
    libc.capget(version, capabilities)
    for n in (0, 1):
        capabilities[n] &= ~(1 << 1)
    libc.capset(version, capabilities)
try:
    os.mkdir("mine")
    sys.exit(NOT_AS_NAMED)
except PermissionError:
    pass
with LocalCluster(
    processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=False
) as cluster, Client(cluster) as client:
    register(client)
    print(client.submit(abs, -1).result(), os.listdir("."))
""",
    "an event loop with a handler for exceptions": """
import asyncio
from distributed import LocalCluster
async def main():
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: print("handler", context.get("message")))
    async with LocalCluster(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0", asynchronous=True
    ) as cluster, Client(cluster, asynchronous=True) as client:
        registering = register(client)
        if registering is not None:
            await registering
        print(await client.submit(abs, -1))
asyncio.run(main())
""",
}
