"""What workers were seen at: profiles as those of a real pipeline, and log records."""

from __future__ import annotations

from typing import Any

from daskscope import names
from daskscope_service.db import schema
from tests.seed_writer import SeedWriter

_SITE = "/opt/conda/envs/features/lib/python3.12/site-packages"
_OURS = "/home/maria/pipelines/features/build_features.py"
_LONG = "a_function_whose_name_tells_in_many_words_what_it_rolls_over_and_why"

#: Depth, file, line, function, source, samples.
_CALLS: tuple[tuple[int, str, int, str, str | None, int], ...] = (
    (
        0,
        "/opt/conda/envs/features/lib/python3.12/threading.py",
        1012,
        "_bootstrap",
        "self._bootstrap_inner()",
        9000,
    ),
    (1, f"{_SITE}/distributed/threadpoolexecutor.py", 57, "_worker", "task.run()", 9000),
    (
        2,
        f"{_SITE}/distributed/worker.py",
        2901,
        "apply_function_simple",
        "result = function(*args, **kwargs)",
        8990,
    ),
    (
        3,
        f"{_SITE}/dask/dataframe/dask_expr/io/parquet.py",
        904,
        "_fragment_to_table",
        "return _to_table(fragment)",
        3900,
    ),
    (
        4,
        f"{_SITE}/pyarrow/dataset.py",
        1440,
        "to_table",
        "return self._scanner(**kwargs).to_table()",
        3650,
    ),
    (3, _OURS, 64, "parse_events", 'events["value"] = events["value"].map(parse_distance)', 3100),
    (
        4,
        _OURS,
        71,
        "parse_distance",
        'return float(text.removesuffix(" km").replace(",", "."))',
        2400,
    ),
    (
        4,
        f"{_SITE}/pandas/core/series.py",
        4700,
        "map",
        "new_values = self._map_values(arg, na_action=na_action)",
        610,
    ),
    (
        5,
        f"{_SITE}/pandas/core/base.py",
        921,
        "_map_values",
        "return algorithms.map_array(arr, mapper)",
        590,
    ),
    (3, _OURS, 88, "window_features", "return sorted(rolled, key=itemgetter(1))", 1700),
    (4, _OURS, 93, _LONG, None, 900),
    (5, _OURS, 88, "window_features", "return sorted(rolled, key=itemgetter(1))", 400),
    (
        3,
        f"{_SITE}/distributed/protocol/serialize.py",
        412,
        "serialize",
        "header, frames = dumps(x)",
        12,
    ),
)


def features_profile(turn: int) -> dict[str, Any]:
    """Return the calls of one of several profiles: they differ a little by ``turn``."""
    lines: list[dict[str, Any]] = []
    parent: list[int] = []
    at: dict[int, int] = {-1: -1}
    number: list[int] = []
    for depth, file, line, function, text, _ in _CALLS:
        at[depth] = len(parent)
        one = {"file": file, "function": function, "line": line, "text": text}
        if one not in lines:
            lines.append(one)
        number.append(lines.index(one))
        parent.append(at[depth - 1])
    samples = [count + 3 * turn if depth == 0 else count for depth, *_, count in _CALLS]
    return {"lines": lines, "parent": parent, "line": number, "samples": samples}


_RECORDS: tuple[tuple[float, int, str, str, str | None], ...] = (
    (-30, 9, "distributed.scheduler", "Receive client connection: Client-1f0c", None),
    (
        -210,
        13,
        "distributed.worker.memory",
        "Unmanaged memory use is high. This may indicate a memory leak or the memory may not be "
        "released to the OS; see the documentation for more information. -- Unmanaged memory: "
        "12.41 GiB -- Worker memory limit: 16.00 GiB",
        "tcp://10.4.12.7:41023",
    ),
    (
        -420,
        17,
        "features.build",
        "no rates for 2026-01-30, taking those of the day before",
        "tcp://10.4.12.9:40811",
    ),
    (-2330, 17, "distributed.worker", "Compute Failed", "tcp://10.4.12.9:40811"),
)


_LAST: tuple[tuple[float, int, str, str], ...] = (
    (-9398, 9, "", "dask.computation.started"),
    (-9260, 13, "distributed.nanny.memory", "Worker tcp://10.4.12.7:41023 exceeded 95% memory"),
    (-9150, 17, "distributed.scheduler", "Removing worker 'tcp://10.4.12.7:41023': killed"),
)


def logs(writer: SeedWriter, cluster: str, computation: str) -> None:
    """Add log records of ``cluster``, and one of a cluster that no beat told of."""
    for i, (at, severity, logger, body, worker) in enumerate(_RECORDS):
        attributes = {names.LOGGER: logger}
        if worker:
            attributes |= {names.WORKER_ADDRESS: worker, names.COMPUTATION_ID: computation}
        _record(writer, cluster, f"r{i}", at, severity, body, attributes)
    _record(writer, "Scheduler-elsewhere", "r9", -500, 0, "a record of a collector", {})


def logs_of_lost(writer: SeedWriter, cluster: str, computation: str) -> None:
    """Add the log records of a computation that its cluster did not outlive."""
    for i, (at, severity, logger, body) in enumerate(_LAST):
        _record(
            writer,
            cluster,
            f"lost-{i}",
            at,
            severity,
            body,
            {names.LOGGER: logger, names.COMPUTATION_ID: computation},
        )


def _record(
    writer: SeedWriter,
    cluster: str,
    id: str,
    at: float,
    severity: int,
    body: str,
    attributes: dict[str, str],
) -> None:
    writer.add(
        schema.log_record,
        id=id,
        cluster=cluster,
        at=writer.now + at,
        severity=severity,
        event_name=names.LOG_RECORD.name,
        body=body,
        attributes=attributes,
        trace_id=None,
        span_id=None,
    )
