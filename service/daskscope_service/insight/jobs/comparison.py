"""Compares two runs: one sentence, why one took longer, and what else differs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daskscope.one_line import one_line, printable
from daskscope_service.db.readable import Readable
from daskscope_service.insight.jobs import differences
from daskscope_service.insight.jobs.code_diff import CodeDiffer
from daskscope_service.insight.jobs.differences import Difference
from daskscope_service.insight.jobs.summary import has_passed, longer
from daskscope_service.insight.jobs.waterfall import RunTime, WaterfallPart, Work, parts
from daskscope_service.insight.verdict import LEAST_THREADS
from daskscope_service.insight.wording import duration, file_name, number, plural, short, size

#: Two runs differ only beyond both of these: a share of the first one's duration, and seconds.
_LEAST_SHARE, _LEAST_SECONDS = 0.10, 0.3
#: The least share of the difference of a part that the sentence names, and the most such parts.
_NAMED_SHARE, _MOST_NAMED = 0.30, 2
#: The most other differences that the sentence names.
_MOST_CANDIDATES = 4
#: The least difference, as a share, of result sizes and thread counts that is reported.
_LEAST_DATA = 0.1
#: The most lines of a diff.
_MOST_LINES = 200

#: What Markdown, or a site that shows it, does not read as plain text: markup, mentions, addresses.
_MARKUP = re.compile(r"[\\`*_\[\]<>!|~&$@#]")
_MENTION = re.compile(r"(\\[@#])(?=\w)")
_ADDRESS = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)

#: How the sentence describes a part, by its kind.
_SAYS = {
    "start": "before the first task began",
    "transfer": "in transfers between workers",
    "disk": "in writing to disk and reading back",
    "waiting": "in waiting with a task assigned",
    "computing": "in computing outside of the task groups that are known",
    "idle": "from threads that had no task",
    "paused": "from workers that were paused for lack of memory",
    "threads": "from the number of threads",
    "rest": "not measured in parts",
}


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run to compare: its row, from :mod:`~daskscope_service.queries.job_runs`, and its groups.

    ``code`` has the file and the text of each frame, outermost first; None if it is not stored.
    """

    row: Readable
    groups: Sequence[Readable]
    code: Sequence[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class GroupPair:
    """The task groups of one prefix in both runs; None for a run without that prefix.

    ``seconds`` are the total seconds that tasks computed, ``output_bytes`` the total size of their
    results.
    """

    prefix: str
    runs: tuple[int | None, int | None]
    mean: tuple[float | None, float | None]
    longest: tuple[float | None, float | None]
    seconds: tuple[float | None, float | None]
    output_bytes: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class CodeDifference:
    """Unified diff of the code around a call. ``cut`` says whether lines were left out."""

    file: str
    diff: str
    cut: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the second run differs from the first. ``parts`` add up to ``seconds``, in duration.

    ``differs`` says whether ``seconds`` are more than the usual variation. ``candidates`` differ as
    well; nothing says that they are the cause.
    """

    sentence: str
    seconds: float
    differs: bool
    parts: Sequence[WaterfallPart]
    candidates: Sequence[Difference]
    code: Sequence[CodeDifference]
    groups: Sequence[GroupPair]


def compare(a: ComparedRun, b: ComparedRun, usual: float | None = None) -> Comparison:
    """Compare two runs. ``usual`` is by how many seconds equal runs of their job may differ."""
    seconds = b.row["duration"] - a.row["duration"]
    margin = max(_LEAST_SHARE * a.row["duration"], _LEAST_SECONDS, usual or 0.0)
    by_size = sorted(parts(_spent(a), _spent(b)), key=lambda part: -abs(part.seconds))
    groups = _groups(a.groups, b.groups)
    candidates = _candidates(a, b, groups)
    differs = abs(seconds) > margin
    return Comparison(
        sentence=_sentence(a, b, by_size, candidates, differs=differs),
        seconds=seconds,
        differs=differs,
        parts=by_size,
        candidates=candidates,
        code=_code(a.code, b.code),
        groups=groups,
    )


def _runs(group: Readable) -> int:
    """Return how many runs the seconds of a task group are of."""
    runs: int = group["completed"] + group["erred"] + group["retried"]
    return runs


def _spent(run: ComparedRun) -> RunTime:
    row, work = run.row, dict[str, Work]()
    for group in run.groups:
        one = work.get(group["prefix"], Work(0, 0, 0.0))
        work[group["prefix"]] = Work(
            one.tasks + group["tasks"],
            one.runs + _runs(group),
            one.seconds + group["seconds"].get("compute", 0.0),
        )
    began = row["began_at"]
    of_all = row["worker_seconds"]
    return RunTime(
        duration=row["duration"],
        start=0.0 if began is None else max(began - row["started_at"], 0.0),
        compute=row["seconds"].get("compute", 0.0),
        transfer=row["seconds"].get("transfer", 0.0),
        disk=row["seconds"].get("disk-read", 0.0) + row["seconds"].get("disk-write", 0.0),
        work=work,
        thread_seconds=row["thread_seconds"],
        idle=of_all.get("idle", 0.0),
        paused=of_all.get("paused", 0.0),
    )


# --- the sentence ---------------------------------------------------------------------------------


def _sentence(
    a: ComparedRun,
    b: ComparedRun,
    explained: Sequence[WaterfallPart],
    candidates: Sequence[Difference],
    *,
    differs: bool,
) -> str:
    before, after = a.row["duration"], b.row["duration"]
    for which, run in (("first", a), ("second", b)):
        if not has_passed(run.row):
            status = run.row["status"]
            why = "had task runs that erred" if status == "finished" else _ENDED[status]
            return (
                f"The {which} run {why}, so the durations are not comparable: {duration(before)} "
                f"and {duration(after)}."
            )
    if not differs:
        return (
            f"The second run took about as long as the first: {duration(after)} and "
            f"{duration(before)}. The difference is within the usual variation."
        )
    text = (
        f"The second run took {longer(after / before - 1)} the first: {duration(after)} instead "
        f"of {duration(before)}."
    )
    seconds = after - before
    named = [part for part in explained if part.seconds / seconds >= _NAMED_SHARE][:_MOST_NAMED]
    if named:
        which = "more" if seconds > 0 else "less"
        said = [f"{duration(abs(part.seconds))} are {_says(part)}" for part in named]
        text += f" Of the {duration(abs(seconds))} {which}, {' and '.join(said)}."
    if candidates:
        some = [one.words for one in candidates[:_MOST_CANDIDATES]]
        left = len(candidates) - len(some)
        some += [f"{left} more"] if left else []
        text += f" At the same time differ: {'; '.join(some)}."
    return text


#: How a run that has not passed ended, by its status.
_ENDED = {
    "running": "still runs",
    "erred": "failed",
    "cancelled": "was cancelled",
    "lost": "was lost with its cluster",
    "finished": "was too short",
}


def _says(part: WaterfallPart) -> str:
    change = f" ({part.change})" if part.change else ""
    if part.kind == "each":
        return f"in what each task of {part.prefix} takes{change}"
    if part.kind == "tasks":
        return f"from the number of tasks of {part.prefix}{change}"
    if part.kind == "repeated":
        return f"from tasks of {part.prefix} that ran again{change}"
    return f"{_SAYS[part.kind]}{change}"


# --- what differs ---------------------------------------------------------------------------------


def _candidates(a: ComparedRun, b: ComparedRun, groups: Sequence[GroupPair]) -> list[Difference]:
    """Return all other differences, in the order in which the sentence names them."""
    one, other = a.row["on"], b.row["on"]
    candidates = [*differences.versions(one, other), *_changed_code(a, b), *_workers(a, b)]
    candidates += [*differences.memory(one, other), *differences.load(a.row, b.row), *_data(groups)]
    candidates += [*differences.settings(one, other), *differences.places(one, other)]
    if a.row["user"] != b.row["user"]:
        candidates.append(Difference("place", "user", a.row["user"], b.row["user"]))
    return [*candidates, *_shape(groups)]


def _changed_code(a: ComparedRun, b: ComparedRun) -> list[Difference]:
    if not differences.code_changed(a.row, b.row):
        return []
    files = [file_name(frame["file"]) for frame in b.row["frames"] or []]
    return [Difference("code", files[-1], None, None)]


def _workers(a: ComparedRun, b: ComparedRun) -> list[Difference]:
    differing = []
    one, other = a.row["workers"], b.row["workers"]
    if one is not None and other is not None and one != other:
        differing.append(Difference("workers", "workers", number(one), number(other)))
    threads = [
        run.row["thread_seconds"] / run.row["duration"]
        for run in (a, b)
        if run.row["thread_seconds"] and run.row["duration"]
    ]
    known = len(threads) == 2 and min(threads) >= LEAST_THREADS
    if known and abs(threads[1] / threads[0] - 1) >= _LEAST_DATA:
        differing.append(Difference("workers", "threads", *map(short, threads)))
    return differing


def _data(groups: Sequence[GroupPair]) -> list[Difference]:
    """Return the difference in the total size of results, if it is large enough."""
    sums = [sum(one.output_bytes[which] or 0 for one in groups) for which in (0, 1)]
    if not all(sums) or abs(sums[1] / sums[0] - 1) < _LEAST_DATA:
        return []
    return [Difference("data", "size of all results", size(sums[0]), size(sums[1]))]


def _shape(groups: Sequence[GroupPair]) -> list[Difference]:
    differing = []
    for one in groups:
        before, after = one.runs
        if before is None or after is None:
            what = f"tasks of {one.prefix}"
            counts = (None if count is None else number(count) for count in (before, after))
            differing.append(Difference("shape", what, *counts))
    return differing


def _code(
    one: Sequence[tuple[str, str | None]], other: Sequence[tuple[str, str | None]]
) -> list[CodeDifference]:
    """Return how the code around the calls differs, for calls whose code both runs have."""
    changed, differ = [], CodeDiffer()
    # Pair calls from the innermost outwards: one run may have sent more calls.
    pairs = zip(reversed(one), reversed(other), strict=False)
    for (_, before), (file, after) in pairs:
        if before is None or after is None or before == after:
            continue
        lines = differ.diff(before, after)
        changed.append(
            CodeDifference(file, "\n".join(lines[:_MOST_LINES]), len(lines) > _MOST_LINES)
        )
    return changed


def _groups(one: Sequence[Readable], other: Sequence[Readable]) -> list[GroupPair]:
    """Return the groups of both runs by prefix; those whose seconds differ most come first."""
    sums = [_by_prefix(groups) for groups in (one, other)]
    pairs = []
    for prefix in {*sums[0], *sums[1]}:
        pair = [each.get(prefix) for each in sums]
        pairs.append(
            GroupPair(
                prefix,
                *(
                    tuple(None if of is None else getattr(of, name) for of in pair)  # type: ignore[arg-type]
                    for name in ("runs", "mean", "longest", "seconds", "output_bytes")
                ),
            )
        )
    return sorted(
        pairs,
        key=lambda pair: (-abs((pair.seconds[1] or 0.0) - (pair.seconds[0] or 0.0)), pair.prefix),
    )


@dataclass(frozen=True, slots=True)
class _Sum:
    """The sums of one prefix's groups. ``runs`` are all runs, as ``seconds`` are of all."""

    runs: int
    seconds: float
    output_bytes: int
    longest: float | None

    @property
    def mean(self) -> float | None:
        return self.seconds / self.runs if self.runs else None


def _by_prefix(groups: Sequence[Readable]) -> dict[str, _Sum]:
    of_prefix: defaultdict[str, list[Readable]] = defaultdict(list)
    for group in groups:
        of_prefix[group["prefix"]].append(group)
    return {
        prefix: _Sum(
            runs=sum(map(_runs, some)),
            seconds=sum(one["seconds"].get("compute", 0.0) for one in some),
            output_bytes=sum(one["output_bytes"] for one in some),
            longest=max(
                (one["longest"] for one in some if one["longest"] is not None), default=None
            ),
        )
        for prefix, some in of_prefix.items()
    }


# --- Markdown -------------------------------------------------------------------------------------


def as_markdown(comparison: Mapping[str, Any]) -> str:
    """Return a comparison, as the API answers it, as Markdown for a comment on a code change."""
    lines = [_text(comparison["sentence"]), ""]
    if comparison["parts"]:
        lines += ["| Part | Was → is | Seconds |", "| --- | --- | ---: |"]
        lines += [
            f"| {_text(part['words'])} | {_text(part['change'])} | {part['seconds']:+.2f} |"
            for part in comparison["parts"]
        ]
        lines += [f"| **All of it** |  | **{comparison['seconds']:+.2f}** |", ""]
    candidates = comparison["candidates"]
    if candidates:
        lines.append(f"What else differs ({plural(len(candidates), 'difference')}):")
        lines += ["", *(f"- {_text(one['words'])}" for one in candidates), ""]
    for one in comparison["code"]:
        diff = printable(one["diff"])
        fence = "`" * max(3, _longest_fence(diff) + 1)
        lines += [f"{fence}diff", diff, fence, ""]
    lines.append(one_line(comparison["url"]))
    return "\n".join(lines)


def _text(text: str) -> str:
    """Escape ``text``, which may contain names that users chose, so that Markdown shows it."""
    text = _MARKUP.sub(r"\\\g<0>", one_line(text))
    # GitHub and GitLab look for mentions and issue numbers after Markdown has removed the
    # backslashes. A zero-width space, which Markdown keeps, hides them.
    text = _MENTION.sub(r"\1&#8203;", text)
    return _ADDRESS.sub(r"\\\g<0>", text)


def _longest_fence(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
