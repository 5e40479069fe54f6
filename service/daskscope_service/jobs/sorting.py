"""The parameter that says in which order jobs are listed, of the API and of pages."""

from __future__ import annotations

from daskscope_service.queries.jobs import Sort
from daskscope_service.web.parameters import Parameter, one_of

_SORTS: tuple[Sort, ...] = ("last", "cost", "change")

SORT = Parameter(
    "sort",
    "The order of the jobs: by newest run, by cost in the last 30 days (highest first), or by "
    "latest change.",
    {"enum": list(_SORTS), "default": _SORTS[0]},
)


def asked_sort() -> Sort:
    """Return what the request asks for."""
    return one_of(SORT.name, _SORTS)
