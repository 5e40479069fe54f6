"""The parameters that say which two runs are compared, of the API and of pages."""

from __future__ import annotations

from daskscope_service.web.parameters import TEXT, Parameter, refuse_unknown, required

RUNS = tuple(
    Parameter(name, f"The id of the computation that is the {which} run.", TEXT, required=True)
    for name, which in (("a", "first"), ("b", "second"))
)


def asked_runs() -> tuple[str, str]:
    """Return the ids that the request asks for."""
    refuse_unknown(*(run.name for run in RUNS))
    a, b = (required(run.name, "the id of a computation") for run in RUNS)
    return a, b
