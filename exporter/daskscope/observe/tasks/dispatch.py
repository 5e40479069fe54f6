"""Adds the trace context of its task group to a task's message to a worker.

Only the message contains it, and the workers remove it (:mod:`daskscope.task_context`), so users
find only their own annotations on a task. Nothing is stored per task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from distributed.metrics import time
from distributed.scheduler import Scheduler, TaskState

from daskscope.containment import contain
from daskscope.observe.tasks.group_index import GroupIndex
from daskscope.task_context import ANNOTATION, CARRIED

# The scheduler's method that makes the message with which it sends a task to a worker.
_MAKES_MESSAGE = "_task_to_msg"
# Where the trace id ends in a traceparent header, after the version "00".
_TRACE_ENDS = len("00-") + 32


def _is_of_trace(carried: Mapping[str, str], annotations: Mapping[str, Any]) -> bool:
    """Return whether the context in a user's ``annotations`` has the same trace as ``carried``.

    If so, the group's span is its descendant, and may replace it.
    """
    own = annotations[ANNOTATION]
    return isinstance(own, str) and own[:_TRACE_ENDS] == carried[CARRIED][:_TRACE_ENDS]


def hand_on_contexts(
    scheduler: Scheduler, members: GroupIndex, drops: Counter[str]
) -> Callable[[], None]:
    """Send each task with its group's context from now on. Return a function to stop it.

    Call it once the workers can remove the context from messages.
    """
    original = getattr(scheduler, _MAKES_MESSAGE, None)
    if original is None:
        return lambda: None
    wholes, singles = members.wholes, members.singles
    over = False

    # It runs for each task, so it adds as few calls as possible.
    def task_to_msg(task: TaskState) -> Any:
        message = original(task)
        if over:
            return message
        try:
            key = task.key
            whole = wholes.get(key[0]) if type(key) is tuple else None
            if whole is None:
                group = singles.get(key)
            else:
                group = whole.group_of(key) if whole.elsewhere else whole.group
            if group is not None:
                carried = group.handed_on
                if carried is not None:
                    if group.sent_at is None:
                        group.sent_at = time()
                    annotations = message["annotations"]
                    if not annotations:
                        message["annotations"] = carried
                    elif ANNOTATION not in annotations or _is_of_trace(carried, annotations):
                        message["annotations"] = {**annotations, **carried}
        except Exception as error:
            contain(error, drops)
        return message

    setattr(scheduler, _MAKES_MESSAGE, task_to_msg)

    def stop() -> None:
        nonlocal over
        over = True
        # If other code has wrapped it since, ours stays inside it and adds nothing.
        if vars(scheduler).get(_MAKES_MESSAGE) is task_to_msg:
            if getattr(original, "__self__", None) is scheduler:
                delattr(scheduler, _MAKES_MESSAGE)
            else:
                setattr(scheduler, _MAKES_MESSAGE, original)

    return stop
