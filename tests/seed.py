"""A workspace full of what real teams' clusters report, for tests and screenshots of pages.

Everything is written straight into the tables, so that a cluster can be in any state, lost ones
too, without waiting for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine

from tests.seed_asked import budget, command, decision, notice, policy, repeats, target, usage
from tests.seed_seen import features_profile, logs, logs_of_lost
from tests.seed_series import series
from tests.seed_spans import spans
from tests.seed_stream import stream
from tests.seed_texts import FEATURES, KILLED_TRACEBACK, PARSE_TRACEBACK, TRAIN, VALUE_TRACEBACK
from tests.seed_writer import GIB, SeedWriter

#: Of a notebook that is older than the image of its cluster, where one worker is older still.
MISMATCHES = (
    {
        "package": "dask",
        "scheduler": "2026.8.0",
        "workers": {"2026.8.0": 1, "2025.11.0": 1},
        "clients": {"2026.3.0": 1},
    },
    {
        "package": "numpy",
        "scheduler": "2.3.4",
        "workers": {"2.3.4": 2},
        "clients": {"1.26.4": 1},
    },
    {"package": "lz4", "scheduler": "4.4.5", "workers": {"4.4.5": 2}, "clients": {"none": 1}},
)


@dataclass(frozen=True, slots=True)
class Seeded:
    """Ids of what is worth looking at."""

    running: str
    stopped: str
    lost: str
    secretive: str
    computations: dict[str, tuple[str, str]]
    fingerprints: tuple[str, ...]


def seed(engine: Engine, workspace: str, now: float) -> Seeded:
    """Fill ``workspace`` as of ``now``, in seconds since the Unix epoch."""
    writer = SeedWriter(workspace, now)
    running = writer.cluster(
        "Scheduler-5a1c7e02-9d0f-4a37-8a55-0c5c1e1b7f10",
        name="features-nightly",
        user="maria.lindqvist",
        started=-5400,
        workers=24,
        tags={"team": "recommendations", "environment": "production", "ticket": "REC-1841"},
    )
    writer.cluster(
        "Scheduler-77b0",
        name="dask-gateway.9f2d7c5b1e3a4f0c8d6b2a1908f7e6d5-interactive-notebook-session",
        kind="GatewayCluster",
        user="jupyter-chidinma.okonkwo-adeyemi@analytics.example.org",
        host="dask-scheduler-9f2d7c5b1e3a4f0c8d6b2a1908f7e6d5-0.dask-gateway.svc.cluster.local",
        started=-86400 * 9,
        workers=2,
        idle=19_400.0,
        mismatches=MISMATCHES,
    )
    writer.cluster("Scheduler-idle", name="empty", user="li", started=-40, workers=0, idle=38.0)
    stopped = writer.cluster(
        "Scheduler-e1",
        name="train-eu-west",
        user="tomas",
        started=-30_000,
        stopped=-26_380,
        workers=64,
    )
    lost = writer.cluster(
        "Scheduler-aa31",
        name="adhoc-geo",
        user="maria.lindqvist",
        started=-14_000,
        heard=-9_100,
        workers=8,
    )
    secretive = writer.cluster(
        "Scheduler-s3",
        name="payroll",
        user="finance-batch",
        started=-7200,
        stopped=-6900,
        workers=4,
    )
    for day in range(2, 9):
        writer.cluster(
            f"Scheduler-n{day}",
            name="features-nightly",
            user="maria.lindqvist",
            started=-86400.0 * day,
            stopped=-86400.0 * day + 3300 + 120 * day,
            workers=24,
        )

    features = writer.code("/home/maria/pipelines/features/build_features.py", 41, FEATURES)
    train = writer.code("/srv/train/jobs/train_eu.py", 88, TRAIN, cut=True)
    computations = {
        "running": writer.computation(running, "run", "running", -190, None, features, call=58),
        "finished": writer.computation(running, "fin", "finished", -900, -655, features, call=48),
        "erred": writer.computation(running, "err", "erred", -2400, -2310, features, call=64),
        "cancelled": writer.computation(
            running, "can", "cancelled", -3000, -2950, features, call=64
        ),
        "lost": writer.computation(lost, "lost", "running", -9400, None, train, call=93),
        "secretive": writer.computation(secretive, "secret", "erred", -7100, -7000, None, call=12),
        "trained": writer.computation(
            stopped, "train", "finished", -29_500, -26_500, train, call=93
        ),
        "tiny": writer.computation(stopped, "tiny", "finished", -29_900, -29_899.8, (), call=1),
    }
    for i in range(30):
        start = -5200 + 60 * i
        writer.computation(
            running, f"loop-{i}", "finished", start, start + 7 + i % 5, features, call=48
        )

    repeats(writer, *computations["finished"])
    spans(writer, computations["finished"])
    spans(writer, computations["erred"], failed_in="hash-join-p2p")

    fingerprints = ("1:9f31c0aa52", "1:0b7de11c4e", "1:77aa01d3f5")
    writer.failure(
        computations["erred"],
        fingerprints[0],
        "ValueError",
        "parse_events",
        "could not convert string to float: '12,4 km'",
        VALUE_TRACEBACK,
        12,
        -2330,
    )
    writer.failure(
        computations["erred"],
        fingerprints[1],
        "SyntaxError",
        "parse_module",
        "invalid syntax (legacy_etl.py, line 214)",
        PARSE_TRACEBACK,
        3,
        -2315,
    )
    writer.failure(
        computations["lost"],
        fingerprints[2],
        "KilledWorker",
        "read_parquet",
        KILLED_TRACEBACK,
        None,
        1,
        -9200,
    )
    writer.failure(
        computations["secretive"],
        "1:5ec4e7",
        "PermissionError",
        "load_salaries",
        None,
        None,
        4,
        -7010,
    )
    writer.failure(
        (stopped, ""),
        fingerprints[0],
        "ValueError",
        "parse_events",
        "could not convert string to float: 'n/a'",
        VALUE_TRACEBACK,
        2,
        -28_000,
    )

    writer.loss(running, "w1", "features-worker-17", "out of memory", False, -2100, 14, 15.7 * GIB)
    writer.loss(running, "w2", "features-worker-03", "closed", True, -1200, 0, 2.1 * GIB)
    writer.loss(lost, "w3", "tcp://10.4.12.7:41023", "lost connection", False, -9150, 3, None)
    writer.shutdown(stopped, "s1", "closing", -26_381, "It was idle for 1 h.")
    command(
        writer, running, "s2", "tomas", -1800, "The night is over.", called_off_by="maria.lindqvist"
    )
    writer.shutdown(
        running, "s2", "called off", -1790, "maria.lindqvist called it off. We need it."
    )
    command(writer, running, "s3", "policy nights", -20, "It was idle for 42 min.")
    target(writer, "the team's channel", "slack://a/b/c", sent_at=-420.0)
    target(writer, "on call", "jsons://hooks.example.org/x", sent_at=-90_000.0,
                  failure="Failed to send JSON POST notification: error=503")  # fmt: skip
    budget(writer, 250.0)
    budget(writer, 40.0, user="jupyter-chidinma.okonkwo-adeyemi@analytics.example.org")
    budget(writer, 1200.0, tag="team=recommendations")
    policy(writer, "nights", 1800, begins="20:00", ends="06:00", time_zone="Europe/Berlin")
    policy(
        writer, "forgotten notebooks", 14_400, "notice", users=["jupyter-*"], tags={"stage": "*"}
    )
    policy(writer, "every cluster of the interactive environment of research", 600, enabled=False)
    decision(writer, running, "nights", -20, "Idle for 42 min; policy 'nights' shuts down after "
                    "30 min between 20:00 and 06:00 Europe/Berlin; it is 23:12 there, so the "
                    "policy asks the cluster to shut down.")  # fmt: skip
    notice(writer, "computation failed", running, -2310,
           "A computation of maria.lindqvist on features-nightly failed after 1 min 30 s: 15 task "
           "runs failed, 3,897 of 4,812 tasks done.")  # fmt: skip
    notice(writer, "worker lost", running, -2100,
           "features-nightly lost the worker features-worker-17: out of memory, with 14 tasks on "
           "it.")  # fmt: skip
    notebook = "jupyter-chidinma.okonkwo-adeyemi@analytics.example.org"
    usage(writer, "Scheduler-n", "maria.lindqvist", 50, 96, 1.1, prices=("USD", 0.06))
    usage(writer, stopped, "tomas", 3, 256, 1.0, prices=("EUR", 0.045))
    usage(writer, "Scheduler-t", "tomas", 12, 256, 0.7, until=20, prices=("EUR", 0.045))
    usage(writer, "Scheduler-77b0", notebook, 10, 8, 16.0)
    usage(writer, secretive, "finance-batch", 1, 16, 0.08)
    writer.activity(stopped, "", idle=41_000.0, unattributed=310.0)
    writer.activity(stopped, "read-parquet", thread_cpu=30_000.0, transfer=1_200.0)
    writer.activity(running, "", idle=31_000.0, paused=12.0, unattributed=2_310.0, transfer=6_150.0)
    writer.activity(
        running, "read-parquet", thread_cpu=41_800.0, thread_noncpu=22_400.0, disk_read=380.0
    )
    writer.activity(running, "groupby", thread_cpu=17_200.0, deserialize=1_920.0, running=610.0)
    writer.profile(running, "p1", -600)
    stream(writer, stopped, -29_000)
    for minute in range(3):
        writer.profile(lost, f"p{minute}", -9400 + 60 * minute, features_profile(minute))
    logs(writer, running, computations["running"][1])
    logs_of_lost(writer, *computations["lost"])
    writer.event(running, "e1", "progress", {"partition": 118, "of": 240, "note": "half way"}, -300)
    writer.event(
        running,
        "e2",
        "invalid-worker-transition",
        {
            "key": "('read-parquet-fused-assign-2f9c0b4f1d7a4e0e9a41d1a4b0c6', 118)",
            "worker": "tcp://10.4.12.7:41023",
            "start": "memory",
            "finish": "fetch",
            "story": [["memory", "released"], ["released", "forgotten"]] * 4,
        },
        -1500,
    )

    series(writer, running, -5400, 0, workers=24)
    series(writer, stopped, -30_000, -26_380, workers=64, gpus=True)
    series(writer, lost, -14_000, -9_100, workers=8, spills=False)
    writer.write(engine)
    return Seeded(running, stopped, lost, secretive, computations, fingerprints)
