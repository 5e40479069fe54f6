"""Why a cluster is still running, and what will end it."""

from __future__ import annotations

from daskscope_service.db.readable import Readable
from daskscope_service.insight.verdict import busy_by, kept_for, past_tasks
from daskscope_service.insight.wording import duration


def why_running(cluster: Readable) -> str:
    """Return why a cluster that runs has not stopped, in sentences.

    It has the columns of its table. Idle policies have sentences of their own.
    """
    held = kept_for(cluster["held_by"] or {})
    idle, timeout = cluster["idle_seconds"], cluster["idle_timeout"]
    if idle is None:
        if past_tasks(cluster):
            there_is = f" There is {held}." if held else ""
            return (
                f"It is at work: {busy_by(cluster)}.{there_is} It is therefore not closed as idle."
            )
        return f"It has work: {held}." if held else "It was at work when it was last heard."
    keeps = f"Nothing runs, but there is {held}." if held else "Nothing runs, and nothing keeps it."
    if timeout is None:
        return (
            f"{keeps} No idle timeout is set in its settings, so it stays until somebody stops it."
        )
    left = timeout - idle
    if left <= 0:
        return f"{keeps} Its idle timeout of {duration(timeout)} has passed: it should close soon."
    return f"{keeps} Its idle timeout of {duration(timeout)} closes it in {duration(left)}."
