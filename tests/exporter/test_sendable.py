"""Whatever was observed can be sent: what is out of bounds is mended, and nothing else touched."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from distributed import Client

from daskscope import names, protocol
from daskscope.sendable import OUT_OF_BOUNDS, sendable
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder


@pytest.mark.parametrize(
    ("odd", "sent"),
    [
        (2**70, protocol.MAX_COUNT),
        (-(2**70), -protocol.MAX_COUNT),
        (float("inf"), float(protocol.MAX_COUNT)),
        (float("nan"), 0.0),
        ({"seconds": {"compute": 1e300}}, {"seconds": {"compute": float(protocol.MAX_COUNT)}}),
        ((1, (2**53 + 1, "x")), (1, (2**53, "x"))),
    ],
)
def test_a_number_out_of_bounds_becomes_the_nearest_and_is_counted(odd: Any, sent: Any) -> None:
    drops: Counter[str] = Counter()
    found = sendable(odd, drops)
    assert (found, type(found), drops) == (sent, type(sent), {OUT_OF_BOUNDS: 1})


@pytest.mark.parametrize(
    "fine", [2**53, -1, 0.5, True, None, "é", ("x", {"y": (1, 2.5)}), protocol.CodeFrame("é", 7)]
)
def test_what_can_be_sent_is_the_same_object(fine: Any) -> None:
    drops: Counter[str] = Counter()
    assert sendable(fine, drops) is fine
    assert not drops


class Heavy:
    """Something that says of itself that it is larger than any memory."""

    def __sizeof__(self) -> int:
        return 2**62


def heavy() -> Heavy:
    return Heavy()


@pytest.mark.uncounted("its bytes are beyond what is sent")
def test_a_sum_beyond_what_json_carries_loses_no_row(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    client.submit(heavy).result()
    computation = recorder.computation()
    assert recorder.groups(computation.id)["heavy"].output_bytes == protocol.MAX_COUNT
    recorder.wait_for(lambda: recorder.beats[-1].drops.get(OUT_OF_BOUNDS), "the count")
    recorder.wait_for(
        lambda: any(
            told.get(("heavy",)) == protocol.MAX_COUNT
            for told in recorder.points(names.TASK_OUTPUT)
        ),
        "the metric",
    )
