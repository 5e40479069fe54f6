"""The task stream of one made-up pipeline. See tests.seed."""

from __future__ import annotations

from tests.seed_groups import SHAPE
from tests.seed_writer import SeedWriter

WORKERS = tuple(f"tcp://10.4.12.{number}:41023" for number in range(1, 13))
PREFIXES = tuple(prefix for prefix, *_ in SHAPE)
THREADS = 4


def stream(writer: SeedWriter, cluster: str, at: float) -> None:
    """Add a minute of a stream: of runs, some of which failed, then of merged ones."""
    chance = writer.chance
    for part in range(3):
        entries = []
        for worker in range(len(WORKERS)):
            for _ in range(THREADS):
                now = chance.uniform(0, 2)
                while now < 18:
                    prefix = min(int(now / 3), len(PREFIXES) - 1)
                    length = chance.lognormvariate(0, 0.6) * 0.8
                    transfer = chance.uniform(0, 0.3) if prefix > 3 else 0.0
                    disk = chance.uniform(0, 0.1) if prefix == 0 else 0.0
                    outcome = 1 if prefix == 2 and chance.random() < 0.06 else 0
                    if part == 1 and worker == 3 and prefix == 4:
                        length *= 5
                    now += transfer + disk
                    entries.append(
                        (worker, prefix, outcome, now, length, 1, 0.0, 0.0, transfer, disk)
                    )
                    now += length
            if part == 2:
                for slot in range(3):
                    entries.append(
                        (worker, 5, 0, 6.0 * slot, 5.9, 1_200 + slot, 23.0, 0.09, 1.5, 0.0)
                    )
        writer.stream(cluster, f"s{part}", at + 20 * part, WORKERS, PREFIXES, entries)
