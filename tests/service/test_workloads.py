"""Real runs, replayed: each sick one's cause is named first, and no healthy one sets anything off.

``workloads/record`` recorded them.
"""

from __future__ import annotations

import pytest

from tests.browser.fixtures.tape import load
from tests.insight.workloads.ask import concluded
from tests.insight.workloads.kinds import KINDS, RECORDED, TAPES
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite


@pytest.mark.parametrize(("name", "interval"), RECORDED)
def test_the_cause_of_a_real_run_is_named_first(
    shared_service: ServiceProcess, name: str, interval: int
) -> None:
    workspace = f"workload-{name.replace('_', '-')}-{interval}"
    found = concluded(shared_service, name, load(f"{name}.{interval}", TAPES), workspace)
    cause = KINDS[name].cause
    if cause is None:
        assert found.named == (), found.headline
    else:
        assert found.named[:1] == (cause,), (found.headline, found.not_measured)


def test_at_least_forty_sick_and_twentyfive_healthy_workloads_are_recorded_at_both() -> None:
    both = [name for name in KINDS if {(name, 2), (name, 10)} <= set(RECORDED)]
    sick = [name for name in both if KINDS[name].cause is not None]
    assert len(sick) >= 40
    assert len(both) - len(sick) >= 25


@pytest.mark.parametrize("earlier", [0.0, 0.2, 0.4, 0.6, 0.8])
def test_what_is_concluded_is_the_same_at_each_fraction_of_a_second(
    shared_service: ServiceProcess, earlier: float
) -> None:
    # A beat came just before this computation: what it counts is no time of the computation's.
    name = "few_retries"
    found = concluded(
        shared_service, name, load(f"{name}.2", TAPES), f"fraction-{earlier}", earlier
    )
    assert found.named == ("waiting",), found.headline
