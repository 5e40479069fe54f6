"""The parameters of lists of computations: by status, by finding, and in which order."""

from __future__ import annotations

from daskscope_service.findings.rule_parameter import FINDING, asked_rule
from daskscope_service.queries.computation_filter import SORTS, STATUSES, ComputationFilter
from daskscope_service.web.parameters import Parameter, one_of, optional

STATUS = Parameter(
    "status",
    "Only computations with this status. Those whose cluster went away while they ran are lost.",
    {"enum": list(STATUSES)},
)
SORT = Parameter(
    "sort",
    "The order: by start, the newest first; or by status, first those that run, then "
    f"{', '.join(STATUSES[1:])}.",
    {"enum": list(SORTS), "default": SORTS[0]},
)
OF_COMPUTATIONS = (STATUS, FINDING, SORT)


def asked_computations() -> ComputationFilter:
    """Return which computations the request asks for, and in which order."""
    return ComputationFilter(
        status=optional(STATUS.name, STATUSES),
        finding=asked_rule(),
        sort=one_of(SORT.name, SORTS),
    )
