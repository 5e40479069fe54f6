"""What the program of this process is called: its flow, notebook, script or batch job."""

from __future__ import annotations

import ntpath
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from daskscope.deployment import deployment_of

#: Variables that say what a process runs: Airflow's name of a DAG; where Prefect finds a flow, as
#: in ``flows/etl.py:nightly``; and a notebook's path, as Jupyter's server sets it.
_FLOWS, _ENTRY_POINTS = ("AIRFLOW_CTX_DAG_ID",), ("PREFECT__FLOW_ENTRYPOINT",)
_NOTEBOOKS = ("JPY_SESSION_NAME",)
#: What batch systems call a job where nobody named it, and it runs no script.
_NO_JOB = frozenset({"bash", "sh", "wrap", "interactive", "STDIN"})

#: Programs that run others' code: their own names say nothing of it.
_SHELLS = frozenset(
    {
        *("-c", "-m", "-", "python", "IPython", "ipython"),
        *("ipykernel_launcher", "ipykernel_launcher.py", "ipykernel"),
        *("dask", "dask-scheduler", "dask-gateway-scheduler", "papermill"),
        *("prefect", "prefect.engine", "prefect.flow_engine"),
    }
)


def program_name() -> str:
    """Return what a person calls what runs here, "" for an interactive session."""
    flow = _first(_FLOWS) or _first(_ENTRY_POINTS).rpartition(":")[2]
    return flow or _file_name(_first(_NOTEBOOKS)) or _script() or _job()


def _first(names: tuple[str, ...]) -> str:
    return next(filter(None, map(os.environ.get, names)), "")


def _script() -> str:
    main = sys.modules.get("__main__")
    spec = main.__dict__.get("__spec__") if type(main) is ModuleType else None
    if type(spec) is ModuleSpec and type(spec.name) is str:  # of "python -m"
        name = spec.name.removesuffix(".__main__")
    else:
        arguments = getattr(sys, "argv", None)
        name = arguments[0] if type(arguments) is list and arguments else ""
        name = _file_name(name) if type(name) is str else ""
    return "" if name in _SHELLS else name


def _job() -> str:
    found = deployment_of(os.environ).items()
    name = next((value for name, value in found if name.endswith(".job.name")), "")
    return "" if name in _NO_JOB else _file_name(name)


def _file_name(path: str) -> str:
    return ntpath.basename(path)
