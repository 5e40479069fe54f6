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
}
