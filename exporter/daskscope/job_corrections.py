"""Merges, splits and names jobs from Python, and undoes that."""

from __future__ import annotations

from typing import cast
from urllib.parse import quote

from daskscope import answers
from daskscope.api_types import JobCorrection
from daskscope.one_line import printable
from daskscope.service_client import check_text, service_client


def list_job_corrections() -> list[JobCorrection]:
    """Return what people of the workspace have corrected about jobs, newest first.

    Each has ``id``, ``job``, ``kind`` (merge, split, name), ``value``, ``at`` and ``by``:
    :class:`daskscope.api_types.JobCorrection` describes them. Raises as
    :func:`daskscope.list_clusters`.
    """
    with service_client() as service:
        answer = service.answer("GET", "job-corrections")
        if not isinstance(answer.get("items"), list):
            raise service.no_service()
        corrections = [answers.Answer(service.with_datetimes(one)) for one in answer["items"]]
        return cast(list[JobCorrection], answers.Answers(corrections, answers.JOB_CORRECTIONS))


def merge_job(job: str, into: str) -> JobCorrection:
    """Make the runs of a job, and all that come, runs of another job, by their ids.

    Return the correction; ``undo_job_correction(correction["id"])`` undoes it. The service gives
    the runs their job in the background.

    Raises
    ------
    ConfigurationError
        There is no token, or an argument is not a string.
    AccessDenied
        The token lacks the scope ``admin``, or its user is not a member of the workspace.
    NotFound
        The workspace has no such job.
    ServiceUnreachable, ServiceError
        There was no answer, or the correction makes no sense: the message says why.
    """
    check_text("into", into)
    return correct_job(job, merge_into=into)


def split_job(job: str, by: str) -> JobCorrection:
    """Make one job of all runs of a job with the same code and user, or the same shape and user.

    ``by`` is "code" or "shape". Returns and raises as :func:`merge_job`.
    """
    check_text("by", by)
    return correct_job(job, split_by=by)


def name_job(job: str, name: str) -> JobCorrection:
    """Give a job a name, which pages, lists and answers show. Returns and raises as merge_job."""
    return correct_job(job, name=name)


def undo_job_correction(id: str) -> None:
    """Undo a merge, a split or a name of a job. Raises as :func:`merge_job`.

    With a split, the corrections of the jobs that it made end, too.
    """
    check_text("id", id)
    with service_client() as service:
        service.ask("DELETE", f"job-corrections/{quote(id, safe='')}")


def preview_job_correction(job: str, **requested: str) -> str:
    """Return what a correction would do, in words, and change nothing.

    ``requested`` is one of ``merge_into`` (the id of a job), ``split_by`` (code, shape) and
    ``name``. Raises as :func:`merge_job`, but needs only a token of scope ``read``.
    """
    for name, value in ({"job": job} | requested).items():
        check_text(name, value)
    with service_client() as service:
        path = f"jobs/{quote(job, safe='')}/correction-preview"
        answer = service.answer("GET", path, params=requested)
        if not isinstance(answer.get("sentence"), str):
            raise service.no_service()
        return printable(answer["sentence"])


def correct_job(job: str, **requested: str) -> JobCorrection:
    """Merge, split or name a job, as :func:`preview_job_correction` describes."""
    for name, value in ({"job": job} | requested).items():
        check_text(name, value)
    with service_client() as service:
        answer = service.answer("POST", "job-corrections", json={"job": job} | requested)
        if "id" not in answer:
            raise service.no_service()
        return cast(JobCorrection, answers.Answer(service.with_datetimes(answer)))
