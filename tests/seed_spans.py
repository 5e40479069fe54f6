"""The spans of a computation that ended, as the plugin sends them. See tests.seed."""

from __future__ import annotations

from typing import Any

from daskscope import names
from daskscope_service.db import schema
from tests.seed_writer import SeedWriter

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
_WORKERS = ("tcp://10.4.12.7:41023", "tcp://10.4.12.9:40811", "tcp://10.4.12.31:39127")

#: Of the task runs that have a span: where each begins and ends in its group's time, 0 to 1.
_RUNS = ((0.0, 0.12), (0.02, 0.45), (0.3, 0.41), (0.35, 0.92), (0.61, 0.7), (0.88, 1.0))


def spans(writer: SeedWriter, where: tuple[str, str], failed_in: str = "") -> None:
    """Add the spans of a computation; in the group of the prefix ``failed_in`` two runs failed."""
    cluster, computation = where
    (row,) = writer.rows(schema.computation, cluster=cluster, id=computation)
    groups = writer.rows(schema.task_group, cluster=cluster, computation=computation)
    longest = max(groups, key=lambda group: sum(group["seconds"].values()))
    root = computation[:16]

    def add(span: str, parent: str | None, name: str, times: Any, **values: Any) -> None:
        attributes = values.pop("attributes")
        writer.add(
            schema.span,
            cluster=cluster,
            trace_id=TRACE_ID,
            span_id=span,
            parent_span_id=parent,
            name=name,
            started_at=times[0],
            stopped_at=times[1],
            status="error" if values.get("failed") else "unset",
            attributes={names.COMPUTATION_ID: computation} | attributes,
        )

    add(
        root,
        "00f067aa0ba902b7",
        names.SPAN_COMPUTATION.of(longest["prefix"]),
        (row["started_at"], row["stopped_at"]),
        failed=row["erred"],
        attributes={names.COMPUTATION_STATUS: row["status"]},
    )
    for number, group in enumerate(groups):
        if group["started_at"] is None:
            continue
        times = (group["started_at"], group["stopped_at"])
        failed = group["prefix"] == failed_in
        span = f"{root[:12]}-g{number}"
        add(
            span,
            root,
            names.SPAN_TASK_GROUP.of(group["prefix"]),
            times,
            failed=failed,
            attributes={
                names.TASK_GROUP_NAME: group["name"],
                names.TASK_PREFIX: group["prefix"],
                names.TASK_GROUP_TASKS: group["tasks"],
                names.TASK_GROUP_SAMPLED: len(_RUNS),
            },
        )
        for turn, (begin, end) in enumerate(_RUNS):
            bad = failed and turn in (2, 4)
            whole = times[1] - times[0]
            attributes = {
                names.TASK_PREFIX: group["prefix"],
                names.TASK_OUTCOME: "erred" if bad else "finished",
                names.WORKER_ADDRESS: _WORKERS[turn % len(_WORKERS)],
            }
            if bad:
                attributes[names.EXCEPTION_TYPE] = "ValueError"
            add(
                f"{span}-{turn}",
                span,
                names.SPAN_TASK.of(group["prefix"]),
                (times[0] + begin * whole, times[0] + end * whole),
                failed=bad,
                attributes=attributes,
            )
