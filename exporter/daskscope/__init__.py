"""Observability for every Dask cluster a team runs.

>>> import daskscope
>>> daskscope.register()  # from a client, with a token in Dask's configuration

or ``dask scheduler --preload daskscope`` with no client at all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from daskscope.version import __version__

if TYPE_CHECKING:
    from daskscope.api import (
        close,
        compare,
        get_job,
        list_clusters,
        list_computations,
        list_events,
        list_exceptions,
        list_findings,
        list_jobs,
        list_repeats,
        task_stream,
        why,
    )
    from daskscope.budget import assert_budget, get_run
    from daskscope.errors import (
        AccessDenied,
        BudgetExceeded,
        ConfigurationError,
        DaskscopeError,
        NotFound,
        NotMeasured,
        NotOnScheduler,
        ServiceError,
        ServiceTooOld,
        ServiceUnreachable,
    )
    from daskscope.explanation.report import Explanation
    from daskscope.inspection import explain
    from daskscope.job_corrections import (
        list_job_corrections,
        merge_job,
        name_job,
        split_job,
        undo_job_correction,
    )
    from daskscope.registration import Registration, dask_setup, register

__all__ = [
    "AccessDenied",
    "BudgetExceeded",
    "ConfigurationError",
    "DaskscopeError",
    "Explanation",
    "NotFound",
    "NotMeasured",
    "NotOnScheduler",
    "Registration",
    "ServiceError",
    "ServiceTooOld",
    "ServiceUnreachable",
    "__version__",
    "assert_budget",
    "close",
    "compare",
    "dask_setup",
    "explain",
    "get_job",
    "get_run",
    "list_clusters",
    "list_computations",
    "list_events",
    "list_exceptions",
    "list_findings",
    "list_job_corrections",
    "list_jobs",
    "list_repeats",
    "merge_job",
    "name_job",
    "register",
    "split_job",
    "task_stream",
    "undo_job_correction",
    "why",
]

# The module of each name. Modules are imported when a name is used: the service uses
# ``daskscope.protocol`` and should not import Dask's scheduler.
_HOMES = {
    "Explanation": "daskscope.explanation.report",
    "explain": "daskscope.inspection",
    "assert_budget": "daskscope.budget",
    "get_run": "daskscope.budget",
    **dict.fromkeys(("Registration", "dask_setup", "register"), "daskscope.registration"),
    **dict.fromkeys(("close", "compare", "get_job", "task_stream", "why"), "daskscope.api"),
    **dict.fromkeys((name for name in __all__ if name.startswith("list_")), "daskscope.api"),
    **dict.fromkeys(
        ("list_job_corrections", "merge_job", "name_job", "split_job", "undo_job_correction"),
        "daskscope.job_corrections",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'daskscope' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "daskscope.errors")), name)


def __dir__() -> list[str]:
    return __all__
