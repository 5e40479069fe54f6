"""Finds the scheduled work that this process belongs to: an orchestrator's task, a job of CI.

It reads a fixed list of environment variables, and nothing else from the environment. Snakemake,
papermill and cron set none.
"""

from __future__ import annotations

from collections.abc import Mapping

from daskscope.deployment import MAX_VALUE

#: Names, and the environment variables with their values.
NAMES = {
    "airflow.dag.id": "AIRFLOW_CTX_DAG_ID",
    "airflow.task.id": "AIRFLOW_CTX_TASK_ID",
    "airflow.run.id": "AIRFLOW_CTX_DAG_RUN_ID",
    "airflow.try.number": "AIRFLOW_CTX_TRY_NUMBER",
    "prefect.flow.name": "PREFECT__FLOW_ENTRYPOINT",
    "prefect.run.id": "PREFECT__FLOW_RUN_ID",
    "dagster.job.name": "DAGSTER_RUN_JOB_NAME",
    "dagster.step.key": "DAGSTER_RUN_STEP_KEY",
    "slurm.array.job.id": "SLURM_ARRAY_JOB_ID",
    "slurm.array.task.id": "SLURM_ARRAY_TASK_ID",
}
#: These count only where the variable beside them is set: others set such names, too.
OF_CI = {
    "GITHUB_ACTIONS": {
        "github.repository.name": "GITHUB_REPOSITORY",
        "github.workflow.name": "GITHUB_WORKFLOW",
        "github.job.name": "GITHUB_JOB",
        "github.run.id": "GITHUB_RUN_ID",
        "github.commit.id": "GITHUB_SHA",
    },
    "GITLAB_CI": {
        "gitlab.project.name": "CI_PROJECT_PATH",
        "gitlab.job.name": "CI_JOB_NAME",
        "gitlab.pipeline.id": "CI_PIPELINE_ID",
        "gitlab.job.id": "CI_JOB_ID",
        "gitlab.commit.id": "CI_COMMIT_SHA",
    },
}


def pipeline_of(variables: Mapping[str, str]) -> dict[str, str]:
    """Return which scheduled work a process with these environment variables belongs to."""
    known = dict(NAMES)
    for sign, names in OF_CI.items():
        if variables.get(sign):
            known |= names
    values = {name: variables.get(variable) for name, variable in known.items()}
    if flow := values["prefect.flow.name"]:
        # A path and the name of the function, such as ``flows/etl.py:nightly``.
        values["prefect.flow.name"] = flow.rpartition(":")[2]
    return {name: value[:MAX_VALUE] for name, value in values.items() if value}
