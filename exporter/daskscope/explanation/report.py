"""Shows the data that a cluster would send, switch by switch.

One snapshot is processed without sending it, once with the settings in force, and again with each
switch turned off. The difference is the data that the switch sends.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from daskscope.config import Settings
from daskscope.explanation.decode import MADE_ANEW
from daskscope.explanation.dry_run import DryRun, OwnNumbers
from daskscope.explanation.latest_rows import MAX_ROWS
from daskscope.observe.cluster.opt_outs import OptOuts
from daskscope.observe.snapshot import Observed
from daskscope.scrubbing import shortened

#: Each switch by its name in ``daskscope.yaml``, with its field of the settings and its value when
#: off.
SWITCHES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("computation.code.transmit", {"code_transmit": False}),
    ("computation.exceptions.transmit", {"exceptions_transmit": False}),
    ("events.allow", {"events_allow": ()}),
    ("profile.transmit", {"profile_transmit": False}),
    ("stream.transmit", {"stream_transmit": False}),
    ("logs.transmit", {"logs_transmit": False}),
    ("traces.transmit", {"traces_transmit": False}),
    ("otlp.enabled", {"otlp_enabled": False}),
    ("tags", {"tags": {}}),
    ("prices", {"prices": None}),
    ("instances.transmit", {"instances_transmit": False}),
)

#: Characters of a setting's value in the overview.
MAX_VALUE = 40

#: The name of the part that is sent whatever the switches are.
ALWAYS = "always"


@dataclass(frozen=True)
class SwitchData:
    """The data that one switch sends; its ``bytes``, and ``gzip``, its bytes compressed.

    ``sends`` holds that data by its kind (``heartbeat``, ``metrics``, ``traces``, ``logs``). It is
    empty if the switch is off, or if there is no such data now. The same data may be in two parts:
    logs are sent over OTLP, so they need both switches.
    """

    setting: str
    value: Any
    sends: dict[str, Any]
    bytes: int
    gzip: int

    @property
    def on(self) -> bool:
        """Return whether the switch is on."""
        return bool(self.value)

    def shown(self, width: int | None = None) -> str:
        """Return its value for people, at most ``width`` characters; ``off`` if it is off."""
        if self.setting == ALWAYS:
            return ""
        if not self.on:
            return "off"
        text = json.dumps(self.value, default=dataclasses.asdict, ensure_ascii=False)
        return text if width is None else shortened(text, width)


@dataclass(frozen=True, repr=False)
class Explanation:
    """The data that a cluster sends, as shown by :func:`daskscope.explain`.

    ``problem`` says why nothing is sent, if so. ``destinations`` are the addresses by the kind of
    data. ``busy_by`` describes the work because of which the cluster is not closed as idle.
    ``bytes`` and ``gzip`` are the sizes of all bodies together, ``scrubbed`` is the number of
    secrets that were replaced. Printing it shows everything; its repr is an overview.
    """

    problem: str | None = None
    cluster: str = ""
    cluster_id: str = ""
    at: datetime | None = None
    interval: float = 0.0
    destinations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    busy_by: tuple[str, ...] = ()
    bytes: int = 0
    gzip: int = 0
    scrubbed: int = 0
    parts: tuple[SwitchData, ...] = ()

    def __getitem__(self, setting: str) -> SwitchData:
        return next(part for part in self.parts if part.setting == setting)

    def __repr__(self) -> str:
        if self.problem is not None:
            return self.overview()
        return (
            f'{self.overview()}\n\nprint() shows all of it; ["events.allow"].sends is what that '
            "one setting sends."
        )

    def __str__(self) -> str:
        if self.problem is not None:
            return self.overview()
        return "\n".join([self.overview(), *self._details()])

    def to_json(self) -> str:
        """Return all of it as JSON."""
        return json.dumps(dataclasses.asdict(self), default=str, indent=2, ensure_ascii=False)

    def overview(self) -> str:
        """Return the destinations, and the bytes that each setting sends."""
        if self.problem is not None:
            return f"daskscope sends nothing: {self.problem}"
        rows = [("setting", "value", "bytes", "compressed")]
        rows += [
            (part.setting, part.shown(MAX_VALUE), f"{part.bytes:,}", f"{part.gzip:,}")
            for part in self.parts
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            [
                f"daskscope reports on {self.cluster} ({self.cluster_id}) "
                f"every {self.interval:g} s:",
                *(f"  {way} to {address}" for way, address in self.destinations.items()),
                f"It is at work, so it is not closed as idle: {'; '.join(self.busy_by)}."
                if self.busy_by
                else "It is idle: no task, call or other plugin of the scheduler is active, "
                "and no worker is.",
                "",
                "It sends this about its current state and the latest rows, at most "
                f"{MAX_ROWS} of each kind: {_size(self.bytes, self.gzip)}.",
                "Each row is sent once, and again when it changes; code is sent once per "
                f"service. Scrubbed secrets: {self.scrubbed}.",
                "These are created for each request, so they differ from what is shown here: "
                "the time of metrics, the observed_time of logs, and the ids of spans below "
                "a computation's.",
                "",
                *(
                    f"  {setting:{widths[0]}}  {value:{widths[1]}}"
                    f"  {size:>{widths[2]}}  {compressed:>{widths[3]}}"
                    for setting, value, size, compressed in rows
                ),
            ]
        )

    def _details(self) -> Iterator[str]:
        for part in self.parts:
            yield ""
            if part.setting == ALWAYS:
                yield f"{ALWAYS}, with any settings: {_size(part.bytes, part.gzip)}"
            elif not part.on:
                yield f"{part.setting} is off: it sends nothing"
            elif not part.sends:
                yield f"{part.setting} is {part.shown()}: there is nothing to send now"
            else:
                yield (
                    f"{part.setting} is {part.shown()}: {_size(part.bytes, part.gzip)}; if it "
                    "were off, this would not be sent:"
                )
            for way, sent in part.sends.items():
                yield f"  {way}"
                yield from _lines(sent)


def explain(
    settings: Settings, observed: Observed, own: OwnNumbers, refusals: OptOuts
) -> Explanation:
    """Return the data of ``observed`` that is sent with ``settings`` and opt-outs ``refusals``.

    ``own`` are the plugin's numbers. It takes long: do not call it on an event loop.
    """
    settings = refusals.in_force(settings)
    full = DryRun(settings, observed, own, refusals)
    parts = []
    for setting, off in SWITCHES:
        field = next(iter(off))
        without = DryRun(dataclasses.replace(settings, **off), observed, own, refusals)
        sends = {
            way: difference
            for way, sent in full.content.items()
            if (
                difference := _difference(
                    sent, without.content.get(way), MADE_ANEW.get(way, frozenset())
                )
            )
        }
        # Span ids are generated each time, and their compressed size varies a little.
        less = max(full.gzip - without.gzip, 0)
        sizes = (full.bytes - without.bytes, less) if sends else (0, 0)
        parts.append(SwitchData(setting, getattr(settings, field), sends, *sizes))
    all_off = {field: value for _, off in SWITCHES for field, value in off.items()}
    least = DryRun(dataclasses.replace(settings, **all_off), observed, own, refusals)
    parts.insert(0, SwitchData(ALWAYS, True, least.content, least.bytes, least.gzip))
    return Explanation(
        cluster=observed.cluster.name,
        cluster_id=observed.cluster.id,
        at=datetime.fromtimestamp(observed.status.at, UTC),
        interval=settings.interval,
        destinations=full.destinations,
        busy_by=observed.status.busy_by or (),
        bytes=full.bytes,
        gzip=full.gzip,
        scrubbed=full.scrubbed,
        parts=tuple(parts),
    )


def _difference(full: Any, less: Any, anew: frozenset[str]) -> Any:
    """Return the part of ``full`` that is not in ``less``; None if there is none.

    Fields in ``anew`` are ignored, because they differ each time.
    """
    if full == less:
        return None
    if isinstance(full, dict) and isinstance(less, dict):
        differences = {
            key: _difference(value, less.get(key), anew)
            for key, value in full.items()
            if key not in anew
        }
        return {key: value for key, value in differences.items() if value is not None} or None
    if isinstance(full, list) and isinstance(less, list):
        if len(full) == len(less):
            pairs = [_difference(*pair, anew) for pair in zip(full, less, strict=True)]
            return [pair for pair in pairs if pair is not None] or None
        left = Counter(_canonical(row, anew) for row in less)
        found_rows = []
        for row in full:
            text = _canonical(row, anew)
            if left[text]:
                left[text] -= 1
            else:
                found_rows.append(row)
        return found_rows
    return full


def _canonical(row: Any, anew: frozenset[str]) -> str:
    if isinstance(row, dict):
        row = {key: value for key, value in row.items() if key not in anew}
    return json.dumps(row, sort_keys=True)


def _lines(sent: Mapping[str, Any]) -> Iterator[str]:
    for field, value in sent.items():
        if isinstance(value, list):
            yield from _rows(field, value, "    ")
        elif isinstance(value, dict) and any(_holds_rows(part) for part in value.values()):
            about = {name: part for name, part in value.items() if not _holds_rows(part)}
            yield f"    {field}: {_json(about)}" if about else f"    {field}"
            for name, part in value.items():
                if _holds_rows(part):
                    yield from _rows(name, part, "      ")
        else:
            yield f"    {field}: {_json(value)}"


def _holds_rows(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(row, dict) for row in value)


def _rows(field: str, rows: list[Any], indent: str) -> Iterator[str]:
    """Yield the number of rows with the fields that all share, then each row's other fields."""
    common: dict[str, Any] = {}
    if len(rows) > 1 and all(isinstance(row, dict) for row in rows):
        first, *others = rows
        common = {
            key: value
            for key, value in first.items()
            if all(key in row and row[key] == value for row in others)
        }
    each = f", each with {_json(common)}" if common else ""
    yield f"{indent}{field}: {len(rows)}{each}"
    for row in rows:
        if common:
            row = {key: value for key, value in row.items() if key not in common}
        yield f"{indent}  {_json(row)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _size(uncompressed: int, compressed: int) -> str:
    return f"{uncompressed:,} bytes, {compressed:,} compressed"
