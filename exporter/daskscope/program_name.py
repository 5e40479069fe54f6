"""Finds the name of this process's program: its flow, notebook, script or batch job."""

from __future__ import annotations

import ntpath
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from daskscope.deployment import deployment_of

#: Environment variables with the name of a program: Airflow's id of a DAG; Prefect's entry point of
#: a flow, such as ``flows/etl.py:nightly``; and the path of a notebook, set by Jupyter's server.
_FLOWS, _ENTRY_POINTS = ("AIRFLOW_CTX_DAG_ID",), ("PREFECT__FLOW_ENTRYPOINT",)
_NOTEBOOKS = ("JPY_SESSION_NAME",)
#: Names that batch systems give to jobs without a name and a script.
_NO_JOB = frozenset({"bash", "sh", "wrap", "interactive", "STDIN"})

#: Programs that run other code, so their names do not describe it.
_SHELLS = frozenset(
    {
        *("-c", "-m", "-", "python", "IPython", "ipython"),
        *("ipykernel_launcher", "ipykernel_launcher.py", "ipykernel"),
        *("dask", "dask-scheduler", "dask-ssh", "dask-gateway-scheduler", "papermill"),
        *("distributed.cli.dask_scheduler", "distributed.cli.dask_spec"),
        *("prefect", "prefect.engine", "prefect.flow_engine"),
    }
)


def program_name() -> str:
    """Return the program's name for people, "" for an interactive session."""
    flow = _first(_FLOWS) or _first(_ENTRY_POINTS).rpartition(":")[2]
    return flow or _file_name(_first(_NOTEBOOKS)) or _script() or _job()


def _first(names: tuple[str, ...]) -> str:
    return next(filter(None, map(os.environ.get, names)), "")


def _script() -> str:
    main = sys.modules.get("__main__")
    spec = main.__dict__.get("__spec__") if type(main) is ModuleType else None
    if type(spec) is ModuleSpec and type(spec.name) is str:  # run by "python -m"
        name = spec.name.removesuffix(".__main__")
    else:
        arguments = getattr(sys, "argv", None)
        name = arguments[0] if type(arguments) is list and arguments else ""
        name = _file_name(name) if type(name) is str else ""
    return "" if name in _SHELLS else name


def _job() -> str:
    attributes = deployment_of(os.environ).items()
    name = next((value for name, value in attributes if name.endswith(".job.name")), "")
    return "" if name in _NO_JOB else _file_name(name)


def _file_name(path: str) -> str:
    return ntpath.basename(path)
