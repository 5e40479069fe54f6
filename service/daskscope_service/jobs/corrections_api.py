"""``/api/v1/job-corrections``: jobs that people have merged, split and named."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from flask import Blueprint, request
from msgspec import Meta

from daskscope import api_types as types
from daskscope_service.accounts.access import changing, require, require_role
from daskscope_service.db.scope import Item, Page, reading
from daskscope_service.jobs import corrections
from daskscope_service.jobs.corrections import Correction, TooManyCorrections
from daskscope_service.queries.job_corrections import list_corrections
from daskscope_service.web.fields import Name
from daskscope_service.web.operation import answers
from daskscope_service.web.parameters import TEXT, Parameter
from daskscope_service.web.problems import Problem
from daskscope_service.web.representation import page_answer

blueprint = Blueprint("job_corrections", __name__, url_prefix="/api/v1")

Id = Annotated[str, Meta(min_length=1, max_length=256)]

#: What can be asked for, one at a time.
_CHOICES = (
    Parameter("merge_into", "The id of the job that it would be merged into.", TEXT),
    Parameter("split_by", "What it would be split by.", {"enum": ["code", "shape"]}),
    Parameter("name", "Its name.", TEXT),
)


class CorrectionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Correct the ``job`` with this id, by exactly one of the other fields.

    ``merge_into`` is the id of the job whose runs its runs become. ``split_by`` makes a job of all
    runs with the same code and user, or the same shape and user. ``name`` is what it is called.
    """

    job: Id
    merge_into: Id | None = None
    split_by: Literal["code", "shape"] | None = None
    name: Name | None = None


@blueprint.get("/job-corrections")
@require("read")
@answers(types.Page[types.JobCorrection])
def get_corrections() -> Item:
    """Answer with the corrections of jobs, newest first. ``next`` is always null."""
    with reading() as scope:
        return page_answer(Page(list_corrections(scope), None))


@blueprint.get("/jobs/<job_id>/correction-preview")
@require("read")
@answers(types.JobCorrectionPreview, *_CHOICES)
def preview(job_id: str) -> Item:
    """Answer with what a correction of a job would do; change nothing. Send one parameter."""
    requested = Correction(job_id, *(request.args.get(one.name, "") for one in _CHOICES))
    with reading() as scope:
        return {"sentence": corrections.preview(scope, requested)}


@blueprint.post("/job-corrections")
@require_role("member")
@answers(types.JobCorrection, body=CorrectionRequest, statuses=(201,), problems=(404, 409))
def post_correction(body: CorrectionRequest) -> Item:
    """Merge, split or name a job. Its runs get their jobs anew, in the background."""
    requested = Correction(body.job, body.merge_into or "", body.split_by or "", body.name or "")
    try:
        with changing() as change:
            id = corrections.correct(change, requested)
    except TooManyCorrections as error:
        raise Problem(409, str(error)) from None
    with reading() as scope:
        made = next((one for one in list_corrections(scope) if one["id"] == id), None)
    if made is None:
        raise Problem(
            409,
            "At the same moment, someone else corrected the same job or undid the correction. Read "
            "the list of corrections, and try again.",
        )
    return made


@blueprint.delete("/job-corrections/<correction_id>")
@require_role("member")
@answers(None, statuses=(204,), problems=(404,))
def delete_correction(correction_id: str) -> None:
    """Undo a correction, and with a split those of the jobs that it made."""
    with changing() as change:
        corrections.undo(change, correction_id)
