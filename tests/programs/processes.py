"""Programs whose workers are processes of their own, with nannies: as ``Client()`` starts them.

To start workers takes seconds, so all of these run one after another with one cluster. Each says
what is peculiar to it in its workers, and leaves them as it found them, or restarts them.
"""

from __future__ import annotations

#: What is submitted with ``**usual`` runs on a worker like any other, what is submitted with
#: ``**strict`` on one that has warnings as errors from its start.
PROCESSES = {
    "logging in a task": """
def f():
    import logging
    logger = logging.getLogger("users")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(funcName)s %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    logger.warning("of %s", "a task")
    logger.info("too little")
    try:
        1 / 0
    except ZeroDivisionError:
        logger.exception("it fails")
    logger.removeHandler(handler)
    logger.propagate = True
    return handler.level, logger.level
print(client.submit(f, **usual, pure=False).result())
""",
    "logging without a handler": """
def f():
    import logging
    logging.getLogger("users.of.nothing").warning("said by the last resort, or by the root")
    logging.getLogger("users.of.nothing").info("not said")
print(client.submit(f, **usual, pure=False).result())
""",
    "how logging is set up in a worker": """
def f():
    import logging
    named = ("", "distributed", "distributed.worker", "users", "asyncio", "py.warnings")
    loggers = [logging.getLogger(name) for name in named]
    return [
        (
            logger.name,
            logger.level,
            logger.propagate,
            logger.disabled,
            [type(handler).__name__ for handler in logger.handlers],
        )
        for logger in loggers
    ], logging.getLoggerClass().__name__, logging.getLogRecordFactory().__name__
print(client.submit(f, **usual, pure=False).result())
print(client.submit(f, **strict, pure=False).result())
""",
    "what records of a worker hold": """
def f():
    import logging
    class Keeps(logging.Handler):
        def emit(self, record):
            kept.append(record)
    kept, handler = [], Keeps()
    logger = logging.getLogger("users")
    logger.addHandler(handler)
    logger.warning("one %d", 1, extra={"mine": 2})
    logger.removeHandler(handler)
    usual = logging.makeLogRecord({}).__dict__
    return [(sorted(set(one.__dict__) - set(usual)), one.args, one.getMessage()) for one in kept]
print(client.submit(f, **usual, pure=False).result())
""",
    "a handler in a worker that raises": """
def f():
    import logging
    class Raises(logging.Handler):
        def emit(self, record):
            raise KeyError("of a handler")
    handler = Raises()
    logging.getLogger("users").addHandler(handler)
    try:
        logging.getLogger("users").warning("text")
    except KeyError as error:
        return repr(error)
    finally:
        logging.getLogger("users").removeHandler(handler)
print(client.submit(f, **usual, pure=False).result())
""",
    "warnings of tasks": """
def f(n):
    import warnings
    warnings.warn(f"of task {n}", stacklevel=1)
    warnings.warn("deprecated", DeprecationWarning, stacklevel=1)
    return n
print(client.submit(f, 1, **usual).result(), client.submit(f, 2, **usual).result())
""",
    "filters of warnings in a worker": """
def f():
    import sys, warnings
    return sys.warnoptions, [(one[0], one[2].__name__, one[4]) for one in warnings.filters]
print(client.submit(f, **usual, pure=False).result())
print(client.submit(f, **strict, pure=False).result())
""",
    "warnings as errors in a worker": """
def f():
    import warnings
    warnings.warn("of a task", stacklevel=1)
def logs():
    import logging
    logging.getLogger("users").warning("of a task")
    return 1
print(repr(client.submit(f, **strict, pure=False).exception()))
print(client.gather(client.map(abs, [-1, -2], **strict, pure=False)))
print(client.submit(logs, **strict, pure=False).result())
print(repr(client.submit(lambda: 1 / 0, **strict, pure=False).exception()))
""",
    "sys.exit in a task": """
import sys
try:
    print(client.submit(sys.exit, 3, **usual, pure=False).result(timeout=90))
except BaseException as error:
    print(type(error).__name__)
print(client.submit(abs, -1, **usual, pure=False).result())
""",
    "a worker that ends at once": """
import os
try:
    client.submit(os._exit, 3, **usual, pure=False).result(timeout=90)
except BaseException as error:
    print(type(error).__name__)
print(client.submit(abs, -2, **usual, pure=False).result())
""",
    "a subprocess of a task": """
def f(code):
    import subprocess, sys
    done = subprocess.run(
        [sys.executable, "-c", code], input="given", capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr
told = "import sys; print(sys.stdin.read(), len(sys.argv)); print('aside', file=sys.stderr); sys.exit(4)"
named = "import os; print(sorted(n for n in os.environ if n.startswith(('DASK', 'OTEL', 'PYTHON'))))"
imported = "import sys; print([name for name in sys.modules if 'dask' in name])"
for code in (told, named, imported):
    print(client.submit(f, code, **usual, pure=False).result())
    print(client.submit(f, code, **strict, pure=False).result())
""",
    "a process that a task forks": """
def f():
    import logging, os, sys
    child = os.fork()
    if child == 0:
        logging.getLogger("users").warning("of the fork")
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(client.submit(f, **usual, pure=False).result())
print(client.submit(abs, -3, **usual, pure=False).result())
""",
    "multiprocessing in a task": """
def f(method):
    import multiprocessing
    try:
        multiprocessing.Process(target=abs, args=(-1,)).start()
    except AssertionError as error:
        refused = str(error)
    # As people help themselves.
    multiprocessing.current_process()._config["daemon"] = False
    try:
        with multiprocessing.get_context(method).Pool(2) as pool:
            return refused, pool.map(abs, [-1, -2]), pool.apply(multiprocessing.parent_process).name
    finally:
        multiprocessing.current_process()._config["daemon"] = True
print(client.submit(f, "fork", **usual, pure=False).result())
""",
    "executors in a task": """
def f():
    import threading
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(abs, [-1, -2]))
    return done, threading.current_thread().name.split("-")[0]
print(client.submit(f, **usual, pure=False).result())
""",
    "threads of a worker that are no daemons": """
def f():
    import threading
    return sorted(t.name.split("-")[0] for t in threading.enumerate() if not t.daemon)
print(client.submit(f, **usual, pure=False).result())
""",
    "hooks and signals of a worker": """
def f():
    import signal, sys, threading
    hooks = (
        sys.excepthook is sys.__excepthook__,
        threading.excepthook is threading.__excepthook__,
        sys.unraisablehook is sys.__unraisablehook__,
        sys.gettrace(),
        sys.getprofile(),
        sys.getrecursionlimit(),
    )
    return hooks, [
        (number, str(signal.getsignal(number)).split(" at ")[0])
        for number in sorted(signal.valid_signals())
        if callable(signal.getsignal(number))
    ]
print(client.submit(f, **usual, pure=False).result())
""",
    "a worker without standard error": """
def f():
    import logging, sys, warnings
    kept, sys.stderr = sys.stderr, None
    try:
        logging.getLogger("users").warning("to nobody")
        warnings.warn("to nobody", stacklevel=1)
    finally:
        sys.stderr = kept
    return "went on"
print(client.submit(f, **usual, pure=False).result())
""",
    "exceptions from another process": """
import traceback
class Mine(Exception):
    def __reduce__(self):
        return Mine, self.args
def f():
    try:
        {}["x"]
    except KeyError as error:
        made = Mine("text", 1)
        made.add_note("a note")
        raise made from error
error = client.submit(f, **usual, pure=False).exception()
print(repr(error), repr(error.__cause__), error.__notes__ if hasattr(error, "__notes__") else None)
print([frame.name for frame in traceback.extract_tb(error.__traceback__)])
""",
    "what a worker cannot read": """
class Odd:
    def __reduce__(self):
        return int, ("no number",)
def f(odd):
    return odd
try:
    print(client.submit(f, Odd(), **usual, pure=False).result(timeout=60))
except BaseException as error:
    print(type(error).__name__, str(error)[:60])
""",
    "tasks that are coroutines": """
async def f(x):
    import asyncio
    import contextvars
    await asyncio.sleep(0)
    set_here = [v.name for v in contextvars.copy_context() if "daskscope" in v.name]
    return x, type(asyncio.get_running_loop()).__name__, set_here
print(client.submit(f, 1, **usual, pure=False).result())
print(client.submit(f, 2, **usual, pure=False).result())
""",
    "events, seceding, clients of tasks": """
def f(x):
    from distributed import get_client, get_worker, secede, rejoin, worker_client
    get_worker().log_event("mine", {"x": x})
    secede()
    rejoin()
    with worker_client() as inner:
        nested = inner.submit(abs, x, pure=False).result()
    return nested, get_client().submit(abs, x - 1, pure=False).result()
print(client.submit(f, -5, **usual, pure=False).result())
print([event["x"] for _, event in client.get_events("mine")])
""",
    # What comes next restarts the workers.
    "logging that is set up anew in a worker": """
def f():
    import logging.config
    logging.config.dictConfig({
        "version": 1,
        "disable_existing_loggers": True,
        "formatters": {"mine": {"format": "mine: %(message)s"}},
        "handlers": {"mine": {"class": "logging.StreamHandler", "formatter": "mine"}},
        "root": {"handlers": ["mine"], "level": "INFO"},
    })
    logging.getLogger("users.new").info("set up anew")
    return [type(handler).__name__ for handler in logging.root.handlers]
print(client.submit(f, **usual, pure=False).result())
print(client.submit(abs, -1, **usual, pure=False).result())
""",
    "plugins of the user's, over a restart": """
from distributed import NannyPlugin, WorkerPlugin
class Mine(WorkerPlugin):
    name = "mine"
    def setup(self, worker):
        worker.mine = 7
    def transition(self, key, start, finish, **kwargs):
        if finish == "error":
            print("seen", key, flush=True)
class OfNannies(NannyPlugin):
    name = "nannies"
    def setup(self, nanny):
        nanny.mine = 8
client.register_plugin(Mine())
client.register_plugin(OfNannies())
def mine(dask_worker):
    return dask_worker.mine
print(sorted(client.run(mine).values()))
before = client.submit(abs, -1, **usual, pure=False)
print(before.result())
client.submit(lambda: 1 / 0, key="fails", **usual).exception()
client.restart(timeout=90)
print(before.status, sorted(client.run(mine).values()), client.submit(abs, -4, **usual, pure=False).result())
client.unregister_worker_plugin("mine")
""",
    "a file that is uploaded": """
with open("uploaded.py", "w") as file:
    file.write("def f():\\n    import warnings\\n    warnings.warn('uploaded')\\n    return __name__\\n")
client.upload_file("uploaded.py")
def call():
    import uploaded
    return uploaded.f()
print(client.submit(call, **usual, pure=False).result())
""",
}
