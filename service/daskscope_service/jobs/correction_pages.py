"""The pages on which users merge, split and name jobs, and undo that."""

from __future__ import annotations

import time

from flask import Blueprint, g, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import acting_as, changing, may_act, signed_in
from daskscope_service.db.scope import Selection, reading
from daskscope_service.jobs import corrections
from daskscope_service.jobs.corrections import Correction, TooManyCorrections
from daskscope_service.queries.job_corrections import are_applied, current_job, list_corrections
from daskscope_service.queries.jobs import jobs_of, list_jobs, titles_of
from daskscope_service.web.fields import Missing, Unfit
from daskscope_service.web.forms import said
from daskscope_service.web.parameters import refuse_unknown

blueprint = Blueprint("job_correction_page", __name__)

#: The fields of the form, exactly one of which has a value.
_FIELDS = ("merge_into", "split_by", "name")
#: How many jobs, those that ran last, can be chosen to merge into.
_CHOICES = 200


@blueprint.get("/jobs/corrections")
@signed_in
def listed() -> ResponseReturnValue:
    """Show all corrections of jobs."""
    with reading() as scope:
        of_workspace = list_corrections(scope)
        titles = titles_of(scope, of_workspace)
        applied = are_applied(scope)
    return render_template(
        "job_corrections.html",
        now=time.time(),
        corrections=of_workspace,
        applied=applied,
        titles=titles,
        may_change=may_act(g.session, "member"),
    )


@blueprint.get("/jobs/<job_id>/correct")
@acting_as("member")
def question(job_id: str) -> ResponseReturnValue:
    """Show what can be corrected about a job or, if the address asks for it, what that will do."""
    refuse_unknown(*_FIELDS)
    requested = Correction(job_id, **{name: request.args.get(name, "") for name in _FIELDS})
    return _question(job_id, requested)


@blueprint.post("/jobs/<job_id>/correct")
@acting_as("member")
def correct(job_id: str) -> ResponseReturnValue:
    """Merge, split or name a job."""
    requested = Correction(job_id, **{name: said(name) for name in _FIELDS})
    try:
        with changing() as change:
            corrections.correct(change, requested)
    except Unfit as error:
        return _question(job_id, requested, 400, str(error))
    except TooManyCorrections as error:
        return _question(job_id, requested, 409, str(error))
    if requested.kind == "split":
        return redirect(url_for(".listed"), code=303)
    return redirect(url_for("jobs_page.job", job_id=requested.merge_into or job_id), code=303)


@blueprint.get("/jobs/corrections/<correction_id>/undo")
@acting_as("member")
def undo_question(correction_id: str) -> ResponseReturnValue:
    """Show what undoing a correction will do."""
    with reading() as scope:
        row, sentence = corrections.undo_preview(scope, correction_id)
        titles = titles_of(scope, [row])
    return render_template(
        "job_correction_undo.html",
        now=time.time(),
        correction=row,
        titles=titles,
        sentence=sentence,
    )


@blueprint.post("/jobs/corrections/<correction_id>/undo")
@acting_as("member")
def undo(correction_id: str) -> ResponseReturnValue:
    """Undo a correction."""
    with changing() as change:
        corrections.undo(change, correction_id)
    return redirect(url_for(".listed"), code=303)


def _question(
    job_id: str, requested: Correction, status: int = 200, wrong: str | None = None
) -> ResponseReturnValue:
    sentence = None
    with reading() as scope:
        here = current_job(scope, job_id)
        if here != job_id:
            return redirect(url_for(".question", job_id=here), code=303)
        matches = jobs_of(scope, [job_id])
        if not matches:
            raise Missing("job", job_id)
        others = [
            one for one in list_jobs(scope, Selection(limit=_CHOICES)).items if one.id != job_id
        ]
        if requested.value and wrong is None:
            try:
                sentence = corrections.preview(scope, requested)
            except Unfit as error:
                status, wrong = 400, str(error)
            except Missing as error:
                status, wrong = 404, str(error)
    page = render_template(
        "job_correct.html",
        job=matches[0],
        others=others,
        requested=requested,
        sentence=sentence,
        wrong=wrong,
    )
    return page, status
