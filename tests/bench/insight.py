"""Whether the service names the cause of what is wrong with a cluster's work, and nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.insight.workloads.ask import concluded
from tests.insight.workloads.kinds import KINDS, RIGHT, UNCOUNTED, WRONG
from tests.insight.workloads.record import record
from tests.service_process import ServiceProcess

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Judged:
    """One run: the rule to be named first (None: nothing is wrong), and those that were named;
    ``numbers`` is RIGHT, WRONG or UNCOUNTED."""

    workload: str
    interval: int
    cause: str | None
    named: tuple[str, ...]
    numbers: str

    @property
    def is_right(self) -> bool:
        """Whether the cause was named first, and of healthy work nothing."""
        return not self.named if self.cause is None else self.named[:1] == (self.cause,)


def measure(tell: Tell, names: Iterable[str] = KINDS) -> list[Judged]:
    """Run the workloads at each of their intervals, one after the other."""
    judged = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        ServiceProcess(Path(folder)) as service,
    ):
        for name in names:
            kind = KINDS[name]
            for interval in kind.intervals:
                run = record(name, interval)
                workspace = f"bench-{name.replace('_', '-')}-{interval}"
                found = concluded(service, name, run.tape, workspace)
                one = Judged(name, interval, kind.cause, found.named, run.numbers)
                judged.append(one)
                tell(f"{name}, every {interval} s: {'right' if one.is_right else found.headline}")
    return judged


def table(judged: Sequence[Judged]) -> str:
    """Return the runs as lines to read, and below them precision, recall and right numbers."""
    line = "{:<24}{:>4} s  {:<26}{:<26}{}"
    lines = [line.format("", "every", "cause", "named first", "").replace(" s  ", "  ", 1)]
    for one in judged:
        first = one.named[0] if one.named else "nothing"
        verdict = "PASS" if one.is_right and one.numbers != WRONG else "wrong"
        lines.append(
            line.format(one.workload, one.interval, one.cause or "healthy", first, verdict)
        )
    sick = [one for one in judged if one.cause is not None]
    named = [one for one in judged if one.named]
    right = sum(one.is_right for one in sick)
    same = sum(one.numbers == RIGHT for one in judged)
    counted = [one for one in judged if one.numbers != UNCOUNTED]
    lines += [
        "",
        f"precision: {_share(right, len(named))} of what was named first was the cause",
        f"recall: {_share(right, len(sick))} of the causes were named first",
        f"numbers: {_share(same, len(counted))} of the runs had those of the independent count",
    ]
    return "\n".join(lines)


def _share(some: int, whole: int) -> str:
    return f"{some} of {whole}" + (f" ({some / whole:.0%})" if whole else "")
