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
}
