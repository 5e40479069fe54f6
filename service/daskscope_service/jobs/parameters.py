"""The query parameters of jobs and comparisons, for the API and for pages."""

from __future__ import annotations

from daskscope_service.db.scope import Selection
from daskscope_service.queries.jobs import Sort
from daskscope_service.web.parameters import (
    LIMIT,
    ROWS,
    SINCE,
    TEXT,
    Parameter,
    instant,
    one_of,
    refuse_unknown,
    required,
)

_SORTS: tuple[Sort, ...] = ("last", "cost", "change", "saving")

SORT = Parameter(
    "sort",
    "The order of the jobs: by newest run, by cost in the last 30 days (highest first), by "
    "latest change, or by the threads' time that their costliest cause would save (most first).",
    {"enum": list(_SORTS), "default": _SORTS[0]},
)
#: The two runs to compare.
RUNS = tuple(
    Parameter(name, f"The id of the computation that is the {which} run.", TEXT, required=True)
    for name, which in (("a", "first"), ("b", "second"))
)


def asked_sort() -> Sort:
    """Return the order in which the request asks for jobs."""
    return one_of(SORT.name, _SORTS)


def asked_runs(*beside: str) -> tuple[str, str]:
    """Return the ids of the two runs that the request asks to compare.

    ``beside`` are the names of other parameters, which the caller reads.
    """
    refuse_unknown(*(run.name for run in RUNS), *beside)
    a, b = (required(run.name, "the id of a computation") for run in RUNS)
    return a, b


def asked_repeats(rows: int = ROWS) -> Selection:
    """Return since when, and how many, repeats the request asks for; ``rows`` is the default."""
    refuse_unknown(SINCE.name, LIMIT.name)
    return Selection(since=instant(SINCE.name), limit=LIMIT.whole_number(rows))
