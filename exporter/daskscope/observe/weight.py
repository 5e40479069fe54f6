"""About how many bytes a snapshot keeps in memory, for whoever holds several of them.

Found on the event loop, so nothing is walked through: rows are counted, each as what one of its
kind usually takes, and only what may be long is measured: texts, and what is sent by name.
"""

from __future__ import annotations

from daskscope.observe.snapshot import Observed

# Bytes of a snapshot without rows, of a row, of an entry of a mapping in it.
_SNAPSHOT = 20_000
_ROW = 2_000
_ENTRY = 150


def weight(snapshot: Observed) -> int:
    """Return about how many bytes ``snapshot`` keeps in memory."""
    rows = (
        len(snapshot.prefixes)
        + len(snapshot.measured.seconds)
        + len(snapshot.activities)
        + len(snapshot.computations)
        + len(snapshot.task_groups)
        + len(snapshot.failures)
        + len(snapshot.worker_losses)
        + len(snapshot.shutdowns)
    )
    # Their texts are short, or measured below.
    small = len(snapshot.events) + len(snapshot.code) + len(snapshot.logs)
    texts = sum(event.size for event in snapshot.events)
    for code in snapshot.code:
        texts += len(code.text)
    for record in snapshot.logs:
        texts += _length(record.text, record.exception, record.traceback)
    for failure in snapshot.failures:
        texts += _length(failure.row.message, failure.row.traceback)
        texts += failure.causes.characters()
    entries = 0
    for loss in snapshot.worker_losses:
        texts += _length(*loss.log or ())
        entries += len(loss.tasks)
    for group in snapshot.task_groups:
        entries += len(group.dependencies) + len(group.types)
    for computation in snapshot.computations:
        texts += _length(*computation.annotations.values())
        entries += len(computation.spans) + len(computation.frames or ())
    for traced in snapshot.traced.values():
        entries += 2 + 2 * len(traced.samples)
    for profile in snapshot.profiles:
        entries += 3 * len(profile.lines) + len(profile.parent)
    return _SNAPSHOT + _ROW * rows + _ROW // 4 * small + _ENTRY * entries + texts


def _length(*texts: str | None) -> int:
    return sum(len(text) for text in texts if text)
