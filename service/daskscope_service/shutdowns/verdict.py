"""The status of a shutdown: a word and a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskscope_service.insight.verdict import Verdict
from daskscope_service.insight.wording import duration

#: The cluster's answers after which no other follows, whatever was requested.
_LAST_ANSWERS = ("called off", "closing", "failed")


def is_over(command: Mapping[str, Any], now: float) -> bool:
    """Return whether there is nothing more to send to the cluster, or to call off.

    ``command`` has the columns of its table, and ``state``: the cluster's answer, or None.
    """
    if command["state"] is not None:
        return command["state"] in _LAST_ANSWERS
    never_sent = command["called_off_at"] is not None and command["delivered_at"] is None
    return never_sent or bool(command["expires_at"] <= now)


def shutdown_verdict(command: Mapping[str, Any], cluster: Verdict, now: float) -> Verdict:
    """Return the status of a shutdown, with a sentence.

    It is ``requested``, ``delivered``, ``announced``, ``closing``, ``done``, ``called off``,
    ``failed``, or ``expired``: given up before the cluster answered.

    ``command`` has the columns of its table, None if the cluster decided by itself, and those of
    ``shutdown``, None before the cluster has answered. Heartbeats may report the end first.
    """
    stopped = cluster.status in ("stopped", "ended")
    silent = " The cluster is silent." if cluster.status == "lost" else ""
    state, detail = command["state"], command["detail"]
    off = (
        f"{command['called_off_by']} called it off" if command["called_off_at"] is not None else ""
    )
    if state in ("called off", "failed"):
        return Verdict(state, detail)
    if state == "closing":
        if stopped:
            return Verdict("done", detail)
        return Verdict("closing", f"{detail} It has not reported yet that it stopped.{silent}")
    if state == "announced":
        if stopped:
            return Verdict("done", f"{detail} It has stopped.")
        answer = f" {off}; the cluster has not confirmed that yet." if off else ""
        return Verdict("announced", f"{detail}{answer}{silent}")
    delivered = command["delivered_at"] is not None
    if off and not delivered:
        why = f" {command['called_off_reason']}".rstrip()
        return Verdict("called off", f"{off} before it was delivered.{why}")
    if stopped:
        return Verdict("expired", "The cluster stopped before it answered.")
    if command["expires_at"] <= now:
        waited = duration(command["expires_at"] - command["requested_at"])
        why = "was delivered, but the cluster has not answered" if delivered else "could not be "
        why += "" if delivered else "delivered: the cluster was not heard"
        return Verdict(
            "expired", f"It {why} within {waited}. Request it again if you still want it."
        )
    if delivered:
        answer = f"{off}; the" if off else "The"
        return Verdict("delivered", f"{answer} cluster has not answered yet.{silent}")
    left = duration(command["expires_at"] - now)
    if silent:
        return Verdict(
            "requested",
            f"The cluster is silent. It gets the request if it reports again within {left}.",
        )
    return Verdict(
        "requested", "The cluster gets the request with the answer to its next heartbeat."
    )
