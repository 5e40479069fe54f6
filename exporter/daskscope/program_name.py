"""What the program of this process is called: its flow, notebook, script or batch job."""

from __future__ import annotations

import ntpath
import os
import sys
from types import ModuleType

#: Variables that say what a process runs: Airflow's name of a DAG, and a notebook's path, as
#: Jupyter's server sets it.
_FLOWS, _NOTEBOOKS = ("AIRFLOW_CTX_DAG_ID",), ("JPY_SESSION_NAME",)
#: What batch systems call a job: by default after its script, or what it was started with.
_JOBS = ("SLURM_JOB_NAME", "PBS_JOBNAME", "LSB_JOBNAME")
_NO_JOB = frozenset({"bash", "sh", "wrap", "interactive", "STDIN"})

#: Programs that run others' code: their own names say nothing of it.
_SHELLS = frozenset(
    {
        *("-c", "-m", "-", "python", "IPython", "ipython"),
        *("ipykernel_launcher", "ipykernel_launcher.py", "ipykernel"),
        *("dask", "dask-scheduler", "dask-gateway-scheduler"),
    }
)


def program_name() -> str:
    """Return what a person calls what runs here, "" for an interactive session. Never raises."""
    return _first(_FLOWS) or _file_name(_first(_NOTEBOOKS)) or _script() or _job()


def _first(names: tuple[str, ...]) -> str:
    return next(filter(None, map(os.environ.get, names)), "")


def _script() -> str:
    main = sys.modules.get("__main__")
    spec = main.__dict__.get("__spec__") if type(main) is ModuleType else None
    name = getattr(spec, "name", None)  # of "python -m"
    if type(name) is str:
        name = name.removesuffix(".__main__")
    else:
        arguments = getattr(sys, "argv", None)
        name = arguments[0] if type(arguments) is list and arguments else ""
        name = _file_name(name) if type(name) is str else ""
    return "" if name in _SHELLS else name


def _job() -> str:
    # LSF's is the whole command line, where nobody named the job: of that, what it runs.
    words = _first(_JOBS).split()
    name = _file_name(words[0]) if words else ""
    return "" if name in _NO_JOB else name


def _file_name(path: str) -> str:
    return ntpath.basename(path)
