"""What people have corrected about jobs: which job a run then belongs to, and that in words.

A job is merged into another, or split by code or by shape. The parts of a split job have its id, a
hyphen and a hash. Corrections follow each other: a part may be merged into another job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from daskscope_service.insight.wording import plural

Kind = Literal["merge", "split", "name"]
#: What a job is split by.
SplitBy = Literal["code", "shape"]

_PART = "-"
_BY = {"code": "the same code and user", "shape": "the same shape and user"}


@dataclass(frozen=True, slots=True)
class Step:
    """A merge or a split. ``value`` is the id of the job merged into, or what splits the job."""

    kind: Kind
    value: str


def part_of(job: str, key: str) -> str:
    """Return the id of the part of the job ``job`` that ``key``, a hash, identifies."""
    return f"{job}{_PART}{key}"


def is_part(id: str, job: str) -> bool:
    """Return whether ``id`` is a part of the job, or a part of a part."""
    return id.startswith(job + _PART)


def whole_jobs(id: str) -> Iterator[str]:
    """Yield the ids of the jobs that a part is a part of, the smallest first."""
    while _PART in id:
        id = id.rpartition(_PART)[0]
        yield id


def corrected(
    id: str, steps: Mapping[str, Step], key_of: Callable[[SplitBy], str | None]
) -> str | None:
    """Return the job of a run that would be of the job ``id``; None if that is not known yet.

    ``key_of`` returns the hash of the part of a split job that the run belongs to, None if that is
    not known.
    """
    seen = set()
    while (step := steps.get(id)) is not None and id not in seen:
        seen.add(id)
        if step.kind == "merge":
            id = step.value
            continue
        key = key_of("code" if step.value == "code" else "shape")
        if key is None:
            return None
        id = part_of(id, key)
    return id


def merged_into(id: str, steps: Mapping[str, Step]) -> str:
    """Return the job that the job ``id`` is merged into in the end, else ``id``."""
    seen = set()
    while (step := steps.get(id)) is not None and step.kind == "merge" and id not in seen:
        seen.add(id)
        id = step.value
    return id


def jobs_before(id: str, steps: Mapping[str, Step]) -> set[str]:
    """Return the other jobs whose runs may have become runs of the job ``id``."""
    seen: set[str] = set()
    wanted = [id]
    while wanted:
        one = wanted.pop()
        if one not in seen:
            seen.add(one)
            wanted += whole_jobs(one)
            wanted += [job for job, step in steps.items() if step == Step("merge", one)]
    return seen - {id}


def ends_of(id: str, steps: Mapping[str, Step], jobs: Collection[str]) -> set[str]:
    """Return which of ``jobs`` may have runs that the job ``id`` would have without corrections."""
    seen: set[str] = set()
    wanted = [id]
    while wanted:
        one = wanted.pop()
        if one in seen:
            continue
        seen.add(one)
        step = steps.get(one)
        if step is None:
            continue
        if step.kind == "merge":
            wanted.append(step.value)
        else:
            wanted += [other for other in (*steps, *jobs) if is_part(other, one)]
    return {one for one in seen if one in jobs}


def merge_in_words(title: str, runs: str, into: str, runs_there: str) -> str:
    """Return what a merge does. ``runs`` and ``runs_there`` are numbers of runs, in words."""
    return (
        f"{runs} of {title}, and all that come, become runs of {into}, which has {runs_there}. "
        "Its usual run, its changes and its cost are then computed from all of them. Mutes of the "
        "first job do not cover them any more. Its address leads to the other job."
    )


def split_in_words(by: SplitBy, parts: Iterable[int]) -> str:
    """Return what a split does. ``parts``: how many of the newest runs each new job gets."""
    sizes = sorted(parts, reverse=True)
    same = _BY[by]
    if not sizes:
        newest = "It has no runs now."
    elif sizes == [1]:
        newest = "It has one run now."
    elif len(sizes) == 1:
        newest = f"All of its newest {plural(sizes[0], 'run')} have {same}: they stay together."
    else:
        shown = [str(size) for size in sizes[:5]] + ["fewer"] * (len(sizes) > 5)
        newest = (
            f"Its newest {plural(sum(sizes), 'run')} become {len(sizes)} jobs, of "
            f"{', '.join(shown[:-1])} and {shown[-1]} runs, each with its own usual run, changes "
            "and cost."
        )
    return (
        f"Runs with {same} are one job. {newest} The job itself has no runs then, and its mutes "
        "cover none. A run that comes joins the job that it fits, or begins another."
    )


def name_in_words(title: str, name: str) -> str:
    """Return what naming a job does."""
    return (
        f"Pages, lists and answers call this job {name} instead of {title}. It keeps its runs, and "
        "keeps the name if its code changes the title."
    )


def undo_in_words(kind: Kind, value: str, more: int) -> str:
    """Return what undoing a correction does. ``more``: other corrections that end with it."""
    if kind == "name":
        return "The job gets its own title again."
    words = (
        "The runs go back to the job that they were of, and so do those that have come since."
        if kind == "merge"
        else f"The jobs that the split by {value} made become one again."
    )
    if more:
        words += f" {plural(more, 'correction')} of these jobs end with it."
    return words
