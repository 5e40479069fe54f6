"""Makes each answer of the API for the first time, in many threads at once: run as a process."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path

import msgspec

from daskscope_service.application import create_app
from daskscope_service.db.engine import upgrade_database
from daskscope_service.settings import Settings

settings = Settings(data_dir=Path(sys.argv[1]))
upgrade_database(settings)
views = create_app(settings).view_functions.values()
operations = [view.__dict__["operation"] for view in views if "operation" in view.__dict__]
types = [
    kind
    for operation in operations
    if operation.checked  # the others make their answers themselves
    for kind in operation.answer.values()
]
together = threading.Barrier(12)


def answer() -> None:
    """Convert what fits no type: the types are looked at all the same."""
    together.wait()
    for kind in types:
        with contextlib.suppress(msgspec.ValidationError):
            msgspec.convert({"items": [{}]}, kind, strict=False)


sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=answer) for _ in range(together.parties)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(types), "types")
