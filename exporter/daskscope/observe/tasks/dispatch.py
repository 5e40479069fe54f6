"""Adds the trace context of its task group to a task's message to a worker.

It is in the message alone, and the workers take it out (:mod:`daskscope.task_context`): a user who
looks at a task's annotations finds none but the user's own. Nothing is kept of it for each task.
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

# Scheduler's method that makes the message of a task for the worker that is to run it.
_MAKES_MESSAGE = "_task_to_msg"
# Where the trace's id ends in a header: after the version, of which there is one.
_TRACE_ENDS = len("00-") + 32


def _is_of_trace(carried: Mapping[str, str], annotations: Mapping[str, Any]) -> bool:
    """Return whether the context in a user's own ``annotations`` is of the trace that is carried:
    the group's span is below it then.
    """
    own = annotations[ANNOTATION]
    return isinstance(own, str) and own[:_TRACE_ENDS] == carried[CARRIED][:_TRACE_ENDS]


def hand_on_contexts(
    scheduler: Scheduler, members: GroupIndex, drops: Counter[str]
) -> Callable[[], None]:
    """Send each task with its group's context from now on. Return what ends it.

    To be called once the workers are able to take it out.
    """
    original = getattr(scheduler, _MAKES_MESSAGE, None)
    if original is None:
        return lambda: None
    wholes, singles = members.wholes, members.singles
    over = False

    # For each task: no call but the one there was.
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
        # Someone may have wrapped it after us: then ours stays, harmless, inside theirs.
        if vars(scheduler).get(_MAKES_MESSAGE) is task_to_msg:
            if getattr(original, "__self__", None) is scheduler:
                delattr(scheduler, _MAKES_MESSAGE)
            else:
                setattr(scheduler, _MAKES_MESSAGE, original)

    return stop
