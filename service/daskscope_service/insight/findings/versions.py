"""Rules about conflicts: different versions of packages, and equal keys of different tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from daskscope_service.insight.findings.evidence import Evidence, FailureGroup
from daskscope_service.insight.findings.finding import (
    Action,
    Finding,
    Measure,
    NotMeasured,
    Outcome,
)
from daskscope_service.insight.wording import plural

#: Exceptions that loading raises if another version of a package wrote the object.
_OF_LOADING = re.compile(
    r"(^|\.)(ImportError|ModuleNotFoundError|UnpicklingError|PicklingError|AttributeError)$"
)
#: Packages that serialize and send tasks and data, and Python itself.
_OF_TRANSPORT = frozenset({"python", "dask", "distributed", "cloudpickle", "msgpack", "lz4"})
#: The ``function`` of a failure whose graph could not be loaded.
_GRAPH = "(graph)"


def version_mismatch(evidence: Evidence) -> Outcome:
    """A task failed to load what it needs, and a package's version differs between processes.

    Functions and data are written by one process and read by another. Where the package that they
    come from has another version there, names may be missing.

    How it is found: the computation failed with an exception of loading (ImportError,
    ModuleNotFoundError, UnpicklingError, PicklingError, AttributeError), its message names a
    package whose version differs between the scheduler, its workers and clients, and no other
    exception failed more often. Or the graph itself could not be loaded, and Dask, Python or a
    package that carries tasks differs.

    What to do: install the same versions everywhere: the same image or lock file for clients,
    scheduler and workers.

    Example: 12 task runs raised AttributeError about pandas, whose version differs between
    processes.
    """
    run, cluster = evidence.run, evidence.cluster
    if run is None or run.status != "erred" or not run.failures or not cluster.mismatches:
        return None
    worst = max(run.failures, key=lambda one: (one.count - one.retried, one.count))
    if not _OF_LOADING.search(worst.type) and worst.function != _GRAPH:
        return None
    packages = _named(worst, cluster.mismatches)
    if packages is None:
        return NotMeasured("the message of the exception")
    if not packages:
        return None
    many = len(packages) > 1
    differ = f"{'versions differ' if many else 'version differs'} between processes"
    names = " and ".join(packages)
    clause = (
        f"its graph could not be loaded on the scheduler ({worst.type}), which has "
        f"{'other versions' if many else 'another version'} of {names} than other processes"
        if worst.function == _GRAPH
        else f"{plural(worst.count, 'task run')} raised {worst.type} about {names}, whose {differ}"
    )
    return Finding(
        rule="version-mismatch",
        severity="critical",
        clause=clause,
        evidence=(
            Measure("exceptions", worst.count, "{exception}", f"failure-{worst.fingerprint}"),
            Measure("packages that differ", len(cluster.mismatches), "{package}"),
        ),
        actions=(Action("Install the same version everywhere.", ", ".join(packages)),),
        confidence="medium",
    )


def _named(failed: FailureGroup, names: Sequence[str]) -> list[str] | None:
    """Return those of ``names``, packages that differ, that ``failed`` is about.

    Return None if the message of the exception is not known.
    """
    if failed.function == _GRAPH:
        return [name for name in names if name in _OF_TRANSPORT]
    if failed.message is None:
        return None
    return [
        name
        for name in names
        if name != "python" and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", failed.message)
    ]


def key_collision(evidence: Evidence) -> Outcome:
    """Two graphs gave the same key to different tasks: results may be another's, or never come.

    How it is found: while the computation began, the scheduler logged Dask's warning "Detected
    different `run_spec` for key". The service reads it where it keeps logs itself.

    What to do: give keys that are unique (`key=`, `name=`), leave them to Dask, or release the
    results of the earlier graph before the next is sent.

    Example: the scheduler warned 1 time that two graphs used one key for different tasks: results
    may be wrong, or never come.
    """
    run, collisions = evidence.run, evidence.meanwhile.collisions
    if run is None:
        return None
    if collisions is None:
        return NotMeasured("what the scheduler logged")
    if not collisions:
        return None
    return Finding(
        rule="key-collision",
        severity="critical",
        clause=f"the scheduler warned {plural(collisions, 'time')} that two graphs used one key "
        "for different tasks: results may be wrong, or never come",
        evidence=(Measure("warnings", collisions, "{warning}"),),
        actions=(
            Action("Use unique keys (key=, name=), or leave them to Dask."),
            Action("Or release the results of the earlier graph before the next one is sent."),
        ),
        confidence="high" if evidence.meanwhile.alone else "medium",
    )
