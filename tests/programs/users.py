"""Programs of users. Each is what its name says."""

from __future__ import annotations

#: In which the code around a call is odd.
CODE = {
    "exec in a bare namespace": """
exec("print(client.submit(abs, -1).result())", {"client": client})
""",
    "exec without a name": """
exec("def f():\\n  return client.submit(abs, -1).result()\\nprint(f())", {"client": client, "__name__": None})
""",
    "exec with a number for a name": """
exec("print(client.submit(abs, -1).result())", {"client": client, "__name__": 7})
""",
    "exec without builtins": """
names = {"client": client, "f": abs, "__builtins__": {}}
exec("x = client.submit(f, -1).result()", names)
print(names["x"], sorted(names))
""",
    "exec in a dictionary of its own kind": """
class Names(dict):
    def get(self, *_):
        raise KeyError("nothing is to be had")
    def __missing__(self, name):
        raise KeyError(name)
exec("print(client.submit(abs, -1).result())", Names(client=client))
""",
    "eval of a lambda": """
print(eval("(lambda: client.submit(abs, -1).result())()"))
""",
    "a file edited meanwhile": """
import pathlib
pathlib.Path("edited.py").write_text("def f(c):\\n    return c.submit(abs, -1).result()\\n")
import edited
pathlib.Path("edited.py").write_text("def f(c):\\n    \'\'\' it does not end\\n")
print(edited.f(client))
""",
    "a file cut short meanwhile": """
import pathlib
pathlib.Path("short.py").write_text("\\n" * 50 + "def f(c):\\n    return c.submit(abs, -1).result()\\n")
import short
pathlib.Path("short.py").write_text("")
print(short.f(client))
""",
    "a file deleted meanwhile": """
import pathlib
pathlib.Path("gone.py").write_text("def f(c):\\n    return c.submit(abs, -1).result()\\n")
import gone
pathlib.Path("gone.py").unlink()
print(gone.f(client))
""",
    "a file in another encoding meanwhile": """
import pathlib
pathlib.Path("latin.py").write_text("def f(c):\\n    return c.submit(abs, -1).result()\\n")
import latin
pathlib.Path("latin.py").write_bytes(b"# \\xff\\xfe\\x00\\ndef f(c):\\n")
print(latin.f(client))
""",
    "a file in an encoding that there is not": """
import pathlib
pathlib.Path("cookie.py").write_text("def f(c):\\n    return c.submit(abs, -1).result()\\n")
import cookie
pathlib.Path("cookie.py").write_text("# coding: klingon\\n")
print(cookie.f(client))
""",
    "a folder in the place of its file": """
import pathlib
pathlib.Path("folder.py").write_text("def f(c):\\n    return c.submit(abs, -1).result()\\n")
import folder
pathlib.Path("folder.py").unlink(); pathlib.Path("folder.py").mkdir()
print(folder.f(client))
""",
    "a pipe in the place of its file": """
import os, pathlib
pathlib.Path("piped.py").write_text("def f(c):\\n    return c.submit(abs, -1).result()\\n")
import piped
pathlib.Path("piped.py").unlink(); os.mkfifo("piped.py")
print(piped.f(client))
""",
    "a file that may not be read": """
exec(compile("print(client.submit(abs, -1).result())", "/proc/self/mem", "exec"))
""",
    "a device for a file": """
exec(compile("print(client.submit(abs, -1).result())", "/dev/zero", "exec"))
""",
    "no name for a file": """
exec(compile("print(client.submit(abs, -1).result())", "", "exec"))
""",
    "a surrogate in the file's name": """
exec(compile("print(client.submit(abs, -1).result())", "script\\udce9.py", "exec"))
""",
    "a name that is no identifier": """
def f():
    return client.submit(abs, -1).result()
f.__code__ = f.__code__.replace(co_name="<\\u2028 \\udce9>", co_qualname="x")
print(f())
""",
    "lines that there are not": """
def f():
    return client.submit(abs, -1).result()
f.__code__ = f.__code__.replace(co_firstlineno=10_000_000)
print(f())
""",
    "no table of lines": """
def f():
    return client.submit(abs, -1).result()
f.__code__ = f.__code__.replace(co_linetable=b"")
print(f())
""",
    "a script that has changed its folder": """
import os
os.mkdir("elsewhere"); os.chdir("elsewhere")
print(client.submit(abs, -1).result())
""",
    "a folder that is gone": """
import os
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
print(client.submit(abs, -1).result())
""",
    "a lazy module that lacks what it needs": """
import sys, types
class Lazy(types.ModuleType):
    def __getattr__(self, name):
        raise ImportError("optional dependency is not installed")
sys.modules["lazy"] = Lazy("lazy")
def f():
    return client.submit(abs, -1).result()
print(f())
""",
    "a lazy module that ends the program": """
import sys, types
class Lazy(types.ModuleType):
    def __getattr__(self, name):
        raise SystemExit(3)
sys.modules["lazy"] = Lazy("lazy")
print(client.submit(abs, -1).result())
""",
    "a lazy module stays unloaded": """
import importlib.util, pathlib, sys
pathlib.Path("heavy.py").write_text("print('loaded')")
spec = importlib.util.find_spec("heavy")
spec.loader = importlib.util.LazyLoader(spec.loader)
sys.modules["heavy"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(client.submit(abs, -1).result(), type(module).__name__)
""",
    "a module that warns of what it has": """
import sys, types, warnings
class Old(types.ModuleType):
    def __getattr__(self, name):
        warnings.warn(f"{name} is old", DeprecationWarning, stacklevel=2)
        raise AttributeError(name)
warnings.simplefilter("always")
sys.modules["old"] = Old("old")
print(client.submit(abs, -1).result())
""",
    "modules that are none": """
import sys
class Raises:
    def __getattribute__(self, name):
        raise RuntimeError(name)
sys.modules["none"] = None
sys.modules["raises"] = Raises()
exec("print(client.submit(abs, -1).result())", {"client": client, "__name__": "none"})
exec("print(client.submit(abs, -1).result())", {"client": client, "__name__": "raises"})
""",
    "its own module taken away": """
import sys
main = sys.modules.pop("__main__")
print(client.submit(abs, -1).result())
sys.modules["__main__"] = main
""",
    "a module in a zip file": """
import sys, zipfile
with zipfile.ZipFile("packed.zip", "w") as file:
    file.writestr("packed.py", "def f(c):\\n    return c.submit(abs, -1).result()\\n")
sys.path.insert(0, "packed.zip")
import packed
print(packed.f(client))
""",
    "a zip file that is gone": """
import os, sys, zipfile
with zipfile.ZipFile("packed.zip", "w") as file:
    file.writestr("packed.py", "def f(c):\\n    return c.submit(abs, -1).result()\\n")
sys.path.insert(0, "packed.zip")
import packed
os.unlink("packed.zip")
print(packed.f(client))
""",
    "byte code alone": """
import os, py_compile, pathlib
pathlib.Path("compiled_.py").write_text("def f(c):\\n    return c.submit(abs, -1).result()\\n")
py_compile.compile("compiled_.py", cfile="compiled_.pyc"); os.unlink("compiled_.py")
import compiled_
print(compiled_.f(client))
""",
    "an interactive console": """
import code
console = code.InteractiveConsole({"client": client})
console.push("def f():"); console.push("    return client.submit(abs, -1).result()"); console.push("")
console.push("f()")
console.push("1/0")
""",
    "doctest": '''
import doctest
def f():
    """
    >>> client.submit(abs, -1).result()
    1
    >>> client.submit(abs, "x").result()
    Traceback (most recent call last):
    TypeError: bad operand type for abs(): 'str'
    """
print(doctest.testmod())
''',
    "a generator, a comprehension, a class body": """
def f():
    yield client.submit(abs, -1).result()
class C:
    x = client.submit(abs, -2).result()
print(list(f()), C.x, [client.submit(abs, -3).result() for _ in range(1)], {client.submit(abs, -4).result() for _ in range(1)})
""",
    "a deep recursion": """
import sys
def f(n):
    return f(n - 1) if n else client.submit(abs, -1).result()
sys.setrecursionlimit(2000)
print(f(1700))
""",
    "an endless recursion that submits": """
def f(n):
    client.submit(abs, -1, key="one")
    return f(n + 1)
try:
    f(0)
except RecursionError as error:
    print(type(error).__name__)
print(client.submit(abs, -1).result())
""",
    "a recursion that has nearly reached its limit": """
import sys
def f(n):
    return f(n - 1) if n else client.submit(abs, -1, key="one")
def depth(frame):
    return 1 + depth(frame.f_back) if frame else 0
try:
    f(sys.getrecursionlimit() - depth(sys._getframe()) - 60)
except RecursionError as error:
    print(type(error).__name__)
print(client.submit(abs, -2).result())
""",
    "a frozen module": """
import sys, types
from importlib.machinery import FrozenImporter, ModuleSpec
mine = sys.modules["mine"] = types.ModuleType("mine")
mine.__spec__ = ModuleSpec("mine", FrozenImporter, origin="frozen")
mine.__loader__ = FrozenImporter
text = "def f(client):\\n    return client.submit(g, -1).result()\\ndef g(x):\\n    return -x"
exec(compile(text, "<frozen mine>", "exec"), mine.__dict__)
print(mine.f(client), mine.g.__module__, hasattr(mine, "__file__"))
""",
    "a frozen program": """
sys.frozen = True
del __file__
print(client.submit(abs, -1).result(), "__file__" in globals())
""",
    "linecache broken": """
import linecache
def getlines(*_):
    raise RuntimeError("broken")
linecache.getlines = linecache.updatecache = linecache.checkcache = getlines
print(client.submit(abs, -1).result())
""",
    "an audit hook that forbids to read source": """
import sys
def hook(event, arguments):
    if event == "open" and str(arguments[0]).endswith(".py"):
        raise PermissionError("not to be read")
client.submit(abs, 1).result()
sys.addaudithook(hook)
def f():
    return client.submit(abs, -1).result()
print(f())
""",
    "a profiler of its own": """
import sys
seen = []
def profile(frame, event, argument):
    if frame.f_code.co_filename == __file__ and event in ("call", "return"):
        seen.append((event, frame.f_code.co_name))
def f():
    return client.submit(abs, -1).result()
sys.setprofile(profile)
f()
sys.setprofile(None)
print(seen)
""",
    "a tracer of its own": """
import sys
seen = []
def trace(frame, event, argument):
    if frame.f_code.co_filename != __file__:
        return None
    seen.append((event, frame.f_lineno))
    return trace
def f():
    return client.submit(abs, -1).result()
sys.settrace(trace)
f()
sys.settrace(None)
print(seen)
""",
    "a tracer that raises": """
import sys
def trace(frame, event, argument):
    if frame.f_code.co_name == "f":
        raise ValueError("traced")
def f():
    return client.submit(abs, -1).result()
sys.settrace(trace)
f()
""",
    "decorators": """
import functools
def twice(function):
    @functools.wraps(function)
    def wrapper(*args):
        function(*args)
        return function(*args)
    return wrapper
@twice
@functools.lru_cache
def f(x):
    return client.submit(abs, x).result()
print(f(-1))
""",
}

#: In which what is submitted is odd.
TASKS = {
    "a partial": """
import functools
print(client.submit(functools.partial(pow, 2), 5).result())
""",
    "an object that is called": """
class Add:
    def __call__(self, x):
        return x + 1
print(client.submit(Add(), 1).result())
""",
    "an object whose repr raises": """
class Odd:
    def __call__(self, x):
        return x + 1
    def __repr__(self):
        raise RuntimeError("no repr")
print(client.submit(Odd(), 1, key="odd").result())
""",
    "an object that lacks everything": """
class Odd:
    def __call__(self, x):
        return x + 1
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(name)
try:
    print(client.submit(Odd(), 1, key="lacks").result())
except BaseException as error:
    print(type(error), error)
""",
    "arguments that have no hash": """
class Odd:
    __hash__ = None
    x = 1
def f(o):
    return o.x
print(client.submit(f, Odd(), pure=False).result())
""",
    "arguments whose repr and hash raise": """
class Odd:
    def __repr__(self):
        raise RuntimeError("no repr")
    def __hash__(self):
        raise RuntimeError("no hash")
    __str__ = __repr__
print(client.submit(lambda o: type(o).__name__, Odd(), pure=False, key="unhashable").result())
""",
    "a function whose name is no text": """
def f(x):
    return x
f.__qualname__ = "\\u2028" * 3
f.__module__ = None
print(client.submit(f, 1, key="nameless").result())
""",
    "a builtin, a type, a method": """
print(client.gather([client.submit(len, "abc"), client.submit(int, "7"), client.submit("a".join, "xyz")]))
""",
    "a lambda with the world in it": """
big = {str(i): i for i in range(1000)}
print(client.submit(lambda k=3: big[str(k)]).result())
""",
    "keys of all kinds": """
keys = [("a", 1), ("b", ("c", 2.5)), "x" * 3000, "with\\nlines", "", "\\u2028", b"bytes".decode()]
for key in keys:
    print(client.submit(abs, -1, key=key).result())
for key in (None.__class__, {}, b"bytes"):
    try:
        print(client.submit(abs, -1, key=key).result())
    except BaseException as error:
        print(type(error).__name__, str(error)[:80])
""",
    "annotations": """
import dask
from distributed import get_worker
def seen():
    worker = get_worker()
    key = worker.get_current_task()
    return sorted((worker.state.tasks[key].annotations or {}).items())
with dask.annotate(priority=3, mine="x"):
    print(client.submit(seen, pure=False, retries=2).result())
print(client.submit(seen, pure=False).result(), dask.get_annotations())
""",
    "annotations of our own name": """
import dask
for value in (7, None, "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", ["x"]):
    with dask.annotate(traceparent=value, tracestate=value):
        print(client.submit(abs, -1, pure=False).result())
""",
    "annotations in a task": """
import dask
print(client.submit(lambda: dict(dask.get_annotations()), pure=False).result())
""",
    "a graph by hand": """
print(client.get({"x": 1, "y": (abs, -2), "z": (sum, ["x", "y"])}, ["z", "y"]))
""",
    "delayed": """
import dask
@dask.delayed
def f(x):
    return x + 1
print(dask.compute(f(1), f(f(2))), f(3).compute())
""",
    "a bag": """
import dask.bag as db
print(db.from_sequence(range(10), npartitions=3).map(lambda x: x * x).sum().compute())
""",
    "persist": """
import dask
x = dask.delayed(abs)(-3).persist()
print(x.compute(), type(x).__name__)
""",
    "map, gather and what failed": """
fs = client.map(lambda x: 1 / x, [1, 0, 2])
print(client.gather(fs, errors="skip"), [f.status for f in fs])
print(repr(fs[1].exception()), [frame.name for frame in __import__("traceback").extract_tb(fs[1].traceback())])
""",
    "retries": """
import os, tempfile
path = os.path.join(os.getcwd(), "tries")
def f(path):
    with open(path, "a") as file:
        file.write("x")
    with open(path) as file:
        n = len(file.read())
    if n < 3:
        raise ValueError(n)
    return n
print(client.submit(f, path, retries=5).result())
""",
    "a task that is cancelled": """
import time
from distributed import Event
f = client.submit(lambda: Event("never").wait(30), pure=False)
f.cancel()
try:
    f.result(timeout=10)
except BaseException as error:
    print(type(error).__name__)
print(f.status)
Event("never").set()
""",
    "an exception of the user's": """
class Mine(Exception):
    def __init__(self, a, b):
        super().__init__(a)
        self.b = b
    def __reduce__(self):
        return Mine, (self.args[0], self.b)
def f():
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise Mine("text", 7) from error
error = client.submit(f).exception()
print(type(error).__name__, error, error.b, repr(error.__cause__))
""",
    "an exception whose text raises": """
class Mine(Exception):
    def __str__(self):
        raise RuntimeError("no text")
    __repr__ = __str__
def f():
    raise Mine()
try:
    client.submit(f).result(timeout=20)
except BaseException as error:
    print(type(error).__name__)
""",
    "what cannot be pickled": """
import threading
try:
    client.submit(lambda lock: 1, threading.Lock())
except BaseException as error:
    print(type(error), str(error).splitlines()[0][:60])
""",
    "a pickle that warns, and counts its frames": """
import sys, warnings
class Odd:
    def __reduce__(self):
        warnings.warn("pickled", UserWarning, stacklevel=2)
        return int, (1,)
warnings.simplefilter("always")
warnings.showwarning = lambda message, category, file, line, *_: print(category.__name__, message)
print(client.submit(abs, Odd(), pure=False).result())
""",
    "a large graph": """
import warnings
warnings.simplefilter("always")
warnings.showwarning = lambda message, category, file, line, *_: print(category.__name__, str(message)[:30], file.rsplit("/", 1)[-1])
print(client.submit(len, b"x" * 11_000_000).result())
""",
    "nested clients": """
from distributed import get_client
def f(x):
    with get_client() as inner:
        return inner.submit(abs, x).result()
print(client.submit(f, -1).result())
""",
    "a worker's client": """
from distributed import worker_client
def f(x):
    with worker_client() as inner:
        return sum(inner.gather(inner.map(abs, [x, x])))
print(client.submit(f, -2).result())
""",
    "an actor": """
class Counter:
    n = 0
    def add(self):
        self.n += 1
        return self.n
    def fails(self):
        raise ValueError("of an actor")
counter = client.submit(Counter, actor=True).result()
print(counter.add().result(), counter.add().result(), counter.n)
try:
    counter.fails().result()
except ValueError as error:
    print(error)
""",
    "client.run": """
def f(dask_worker):
    return type(dask_worker).__name__
def fails():
    raise ValueError("of run")
print(list(client.run(f).values()))
try:
    client.run(fails)
except ValueError as error:
    print(error)
print(client.run_on_scheduler(lambda dask_scheduler: type(dask_scheduler).__name__))
""",
    "a plugin of the user's": """
from distributed import WorkerPlugin
class Mine(WorkerPlugin):
    name = "mine"
    def setup(self, worker):
        worker.mine = 7
client.register_plugin(Mine())
print(list(client.run(lambda dask_worker: dask_worker.mine).values()))
client.unregister_worker_plugin("mine")
""",
    "events": """
client.log_event("mine", {"a": 1})
client.log_event(["mine", "other"], "text")
print([event for _, event in client.get_events("mine")])
print(sorted(topic for topic in client.get_events() if topic in ("mine", "other", "daskscope")))
""",
    "a variable, a queue, a lock, a data set": """
from distributed import Lock, Queue, Variable
Variable("v").set(1); print(Variable("v").get())
Queue("q").put(2); print(Queue("q").get())
with Lock("l"):
    print("held")
client.publish_dataset(d=[1, 2]); print(client.get_dataset("d")); client.unpublish_dataset("d")
""",
    "a setting in a context": """
import dask
with dask.config.set({"distributed.diagnostics.computations.ignore-modules": "text", "a.b": 1}):
    print(client.submit(abs, -1).result(), dask.config.get("a.b"))
with dask.config.set({"distributed.diagnostics.computations": None}):
    try:
        print(client.submit(abs, -2).result())
    except Exception as error:
        print(type(error).__name__)
print(dask.config.get("distributed.diagnostics.computations.nframes"))
""",
    "context variables": """
import contextvars
v = contextvars.ContextVar("v", default=0)
def f():
    v.set(1)
    return client.submit(abs, -1).result()
context = contextvars.copy_context()
print(context.run(f), v.get(), context[v], [variable.name for variable in contextvars.copy_context() if "daskscope" in variable.name])
""",
    "a client of its own kind": """
class Mine(Client):
    calls = 0
    def _graph_to_futures(self, *args, **kwargs):
        Mine.calls += 1
        return super()._graph_to_futures(*args, **kwargs)
with Mine(cluster.scheduler_address, set_as_default=False) as other:
    register(other)
    print(other.submit(abs, -1).result(), Mine.calls)
""",
    "a client that is wrapped": """
original = client._graph_to_futures
def wrapped(*args, **kwargs):
    print("submits")
    return original(*args, **kwargs)
client._graph_to_futures = wrapped
register(client)
print(client.submit(abs, -1).result())
""",
    "a client that is closed": """
client.close()
try:
    client.submit(abs, -1)
except BaseException as error:
    print(type(error).__name__, str(error)[:40])
print(client.status)
""",
    "a client that nobody holds": """
import gc, weakref
ref = weakref.ref(client)
print(client.submit(abs, -1).result())
""",
    "two clients": """
with Client(cluster.scheduler_address, set_as_default=False) as other:
    register(other)
    print(client.submit(abs, -1).result(), other.submit(abs, -2).result())
print(client.submit(abs, -3).result())
""",
    "the result of a future in a callback": """
import threading
done = threading.Event(); seen = []
f = client.submit(abs, -1)
f.add_done_callback(lambda f: (seen.append(f.status), done.set()))
done.wait(30); print(seen)
""",
    "as they complete": """
from distributed import as_completed
print(sorted(f.result() for f in as_completed(client.map(abs, range(-5, 0)))))
""",
    "logging handlers that look for who has logged": """
import logging, sys
def setup():
    import logging, sys
    class Looks(logging.Handler):
        seen = []
        def emit(self, record):
            frame, files = sys._getframe(), []
            while frame:
                files.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_globals["__name__"]))
                frame = frame.f_back
            self.seen.append(files[:8])
    logger = logging.getLogger("looks"); logger.looks = Looks(); logger.addHandler(logger.looks)
    logger.propagate = False
def f():
    import logging
    logging.getLogger("looks").warning("text")
    return len(logging.getLogger("looks").looks.seen)
setup()
print(f(), client.submit(f, pure=False).result())
print(*logging.getLogger("looks").looks.seen, sep="\\n")
logging.getLogger("cannot").addHandler(logging.StreamHandler())
logging.getLogger("cannot").warning("%d", "text")
""",
    "a Client that is patched later": """
from unittest import mock
original = Client._graph_to_futures
def patched(self, *args, **kwargs):
    print("patched")
    return original(self, *args, **kwargs)
with mock.patch.object(Client, "_graph_to_futures", patched):
    print(client.submit(abs, -1).result())
with mock.patch.object(client, "_graph_to_futures", wraps=client._graph_to_futures) as ours:
    print(client.submit(abs, -2).result(), ours.call_count)
print(client.submit(abs, -3).result())
""",
    "prints and warnings from tasks": """
import warnings
from distributed import print as tell, warn
def f():
    tell("from a task\\n", end=""); warn("of a task")  # in one write: two threads print it
    return 1
print(client.submit(f, pure=False).result())
""",
    "log records of tasks, as a handler keeps them": """
def setup():
    import logging
    class Keeps(logging.Handler):
        kept = []
        def emit(self, record):
            self.kept.append(record)
    logger = logging.getLogger("users"); logger.keeps = Keeps(); logger.addHandler(logger.keeps)
    logger.propagate = False
class Arg:
    n = 0
    def __str__(self):
        Arg.n += 1
        return "arg"
def f():
    import logging
    logging.getLogger("users").warning("of %s", Arg())
    try:
        1 / 0
    except ZeroDivisionError:
        logging.getLogger("users").exception("it fails")
def seen():
    import logging
    logger = logging.getLogger("users")
    logger.removeHandler(logger.keeps)
    return [sorted(key for key in record.__dict__ if key.startswith(("_", "dask"))) for record in logger.keeps.kept]
client.run(setup)
client.submit(f, pure=False).result()
print(list(client.run(seen).values()))
""",
    "a handler in a worker that raises": """
def f():
    import logging
    class Raises(logging.Handler):
        def emit(self, record):
            raise KeyError("of a handler")
    logger = logging.getLogger("raises")
    handler = Raises(); logger.addHandler(handler)
    try:
        logger.warning("text")
    except KeyError as error:
        return repr(error)
    finally:
        logger.removeHandler(handler)
print(client.submit(f, pure=False).result())
""",
}

#: In which the process is odd.
PROCESS = {
    "a task's exception that nobody catches": """
def fails():
    raise ValueError("text of it")
client.submit(fails).result()
""",
    "an exit code": """
print(client.submit(abs, -1).result())
sys.exit(7)
""",
    "an exit with a message": """
client.submit(abs, -1).result()
sys.exit("the message")
""",
    "an exit without cleaning up": """
print(client.submit(abs, -1).result(), flush=True)
os._exit(5)
""",
    "an interrupt": """
client.submit(abs, -1).result()
raise KeyboardInterrupt
""",
    "a hook for exceptions": """
def hook(kind, error, traceback):
    print("hook", kind.__name__, error)
sys.excepthook = hook
client.submit(lambda: 1 / 0).result()
""",
    "a hook for exceptions of threads": """
import threading
threading.excepthook = lambda args: print("hook", args.exc_type.__name__)
thread = threading.Thread(target=lambda: client.submit(lambda: 1 / 0).result())
thread.start(); thread.join()
""",
    "functions at exit, in their order": """
import atexit
atexit.register(print, "first")
print(client.submit(abs, -1).result())
atexit.register(print, "second")
""",
    "a function at exit that submits": """
import atexit
atexit.register(lambda: print(client.submit(abs, -1).result()))
""",
    "warnings as errors": """
warnings.simplefilter("error")
print(client.submit(abs, -1).result())
""",
    "threads that submit": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(lambda x: client.submit(abs, x).result(), range(-40, 0))))
""",
    "a thread with a small stack": """
import threading
threading.stack_size(256 * 1024)
out = []
thread = threading.Thread(target=lambda: out.append(client.submit(abs, -1).result()))
thread.start(); thread.join(); print(out)
""",
    "an asynchronous client": """
import asyncio
async def main():
    async with Client(cluster.scheduler_address, asynchronous=True, set_as_default=False) as c:
        registering = register(c)
        if registering is not None:
            await registering
        print(await c.submit(abs, -1), await c.gather(c.map(abs, [-2, -3])))
        task = asyncio.create_task(c.submit(lambda: 1 / 0).result())
        print(repr((await asyncio.gather(task, return_exceptions=True))[0]))
asyncio.run(main())
""",
    "an asynchronous call that is cancelled": """
import asyncio
from distributed import Event
async def main():
    async with Client(cluster.scheduler_address, asynchronous=True, set_as_default=False) as c:
        registering = register(c)
        if registering is not None:
            await registering
        future = c.submit(lambda: Event("late").wait(60), pure=False)
        try:
            await asyncio.wait_for(future.result(), 0.3)
        except TimeoutError:
            print("timed out")
        await Event("late").set()
asyncio.run(main())
""",
    "processes of multiprocessing, forked": """
import multiprocessing
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.map(abs, [-1, -2]))
print(client.submit(abs, -1).result())
""",
    "a subprocess": """
import subprocess
client.submit(abs, -1).result()
print(subprocess.run([sys.executable, "-I", "-S", "-c", "print(7)"], capture_output=True, text=True).stdout)
""",
    "no standard error": """
sys.stderr = None
print(client.submit(abs, -1).result())
""",
    "no standard output": """
client.submit(abs, -1).result()
sys.stdout.close(); os.close(1)
""",
    "no standard files at all": """
for n in (0, 1, 2):
    os.close(n)
sys.exit(client.submit(abs, -9).result())
""",
    "a main module that answers nothing": """
class Odd:
    def __getattr__(self, name):
        raise RuntimeError(name)
__spec__ = Odd()
sys.argv = Odd()
register(client)
print(client.submit(abs, -1).result())
""",
    "no home": """
os.environ.pop("HOME", None)
register(client)
print(client.submit(abs, -1).result())
""",
    "a home that there is not": """
os.environ["HOME"] = os.environ["XDG_STATE_HOME"] = "/nowhere/at/all"
register(client)
print(client.submit(abs, -1).result())
""",
    "few open files": """
import resource
client.submit(abs, 1).result()
taken = []
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
try:
    while True:
        taken.append(open(os.devnull))
except OSError:
    pass
future = client.submit(abs, -1)
for file in taken:
    file.close()
print(future.result())
""",
    "what is in its globals": """
client.submit(abs, -1).result()
print(sorted(name for name in globals() if name not in ("annotations",)))
""",
    "what it was interrupted in": """
try:
    try:
        raise ValueError("first")
    except ValueError:
        client.submit(abs, -1).result()
        raise KeyError("second")
except KeyError as error:
    print(repr(error.__context__), sys.exc_info()[0].__name__)
print(sys.exc_info())
""",
    "no garbage collector": """
import gc
gc.disable()
print(client.submit(abs, -1).result(), gc.isenabled())
""",
    "a hook for what cannot be raised": """
sys.unraisablehook = lambda what: print("unraisable", what.exc_type)
for n in range(20):
    client.submit(abs, n).result()
""",
    "chance": """
import random
random.seed(3)
client.submit(abs, -1).result()
print(random.random())
""",
}
