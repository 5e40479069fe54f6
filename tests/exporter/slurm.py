"""A real SLURM of one node on this machine, of Debian's packages, its files all in one folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.patience import START_PATIENCE, wait_until
from tests.ports import free_port

#: What Debian has them in: ``apt-get install munge slurmctld slurmd slurm-client``.
PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "sinfo")


def missing() -> str:
    """Return why there can be no SLURM here, or nothing."""
    absent = [name for name in PROGRAMS if _path(name) is None]
    if absent:
        return f"SLURM is not installed: {', '.join(absent)}"
    return "" if os.geteuid() == 0 else "only root may start jobs of SLURM"


@contextmanager
def slurm(folder: Path) -> Iterator[None]:
    """Run a SLURM whose jobs are processes of this machine; its commands find it meanwhile."""
    host = socket.gethostname().partition(".")[0]
    key, socket_path = folder / "munge.key", folder / "munge.socket"
    configuration = folder / "slurm.conf"
    configuration.write_text(
        f"""ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={socket_path}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=tests Nodes={host} Default=YES MaxTime=10 State=UP
"""
    )
    for name in ("state", "spool"):
        (folder / name).mkdir()
    subprocess.run([_path("mungekey") or "", "-c", "-k", str(key)], check=True)
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(configuration)
    with ExitStack() as parts:
        try:
            parts.enter_context(
                _running(
                    folder, "munged", "--foreground", "--force", f"--key-file={key}",
                    f"--socket={socket_path}", f"--pid-file={folder}/munge.pid",
                    f"--seed-file={folder}/munge.seed", f"--log-file={folder}/munge.log",
                )
            )  # fmt: skip
            wait_until(socket_path.exists, what="munge")
            parts.enter_context(_running(folder, "slurmctld", "-D", "-f", str(configuration)))
            parts.enter_context(
                _running(folder, "slurmd", "-D", "-N", host, "-f", str(configuration))
            )
            wait_until(lambda: _says("sinfo", "-h", "-o", "%T") == "idle", what="SLURM's node")
            yield
        except BaseException:
            for log in folder.glob("*.log"):
                print(log.name, log.read_text(errors="replace")[-4000:], sep="\n")
            raise
        finally:
            if before is None:
                del os.environ["SLURM_CONF"]
            else:
                os.environ["SLURM_CONF"] = before


@contextmanager
def _running(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    with (folder / f"{name}-output.log").open("w") as log:
        process = subprocess.Popen([_path(name) or name, *arguments], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(START_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _path(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _says(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=START_PATIENCE
    )
    return done.stdout.strip()
