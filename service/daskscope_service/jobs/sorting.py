"""The parameter that says in which order jobs are listed, of the API and of pages."""

from __future__ import annotations

from daskscope_service.queries.jobs import Sort
from daskscope_service.web.parameters import Parameter, one_of

_SORTS: tuple[Sort, ...] = ("last", "cost", "change")

SORT = Parameter(
    "sort",
    "Which jobs come first: those that ran last, that cost most in the last 30 days, or that "
    "changed last.",
    {"enum": list(_SORTS), "default": _SORTS[0]},
)


def asked_sort() -> Sort:
    """Return what the request asks for."""
    return one_of(SORT.name, _SORTS)
