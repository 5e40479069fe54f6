"""A real script, run again and again, then slower, with more data, on fewer workers, with a spill.

The sentence and the waterfall name what was changed, and only that; of equal runs, nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.exporter import counted_preload
from tests.other_pandas import python_with_other_pandas
from tests.patience import PATIENCE, slowness
from tests.service.job_history import Place
from tests.service_process import ServiceProcess

pytestmark = [pytest.mark.sqlite, pytest.mark.slow]

SCRIPT = """
import json, sys, time
import daskscope
from dask.delayed import delayed
from distributed import Client, LocalCluster, get_client

def nap(number, seconds):
    time.sleep(seconds)
    return number

def work(tasks, seconds):
    naps = [delayed(nap)(number, seconds) for number in range(tasks)]
    return delayed(sum)(naps).compute()

if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    with (
        LocalCluster(
            n_workers=wanted["workers"], threads_per_worker=2, dashboard_address=":0",
            processes=False,
        ) as cluster,
        Client(cluster) as client,
    ):
        daskscope.register(client, interval="500ms", tags={"round": wanted["name"]})
        for again in range(wanted["runs"]):
            work(wanted["tasks"], wanted["seconds"])
            time.sleep(0.2)
"""
USUAL = {"runs": 1, "workers": 2, "tasks": 32, "seconds": 0.2}


class Rounds(Place):
    """Runs the script, and knows the runs of each of its rounds."""

    def __init__(self, service: ServiceProcess, folder: Path) -> None:
        super().__init__(service)
        self.folder = folder
        # All rounds take the same, so long that what else this machine does matters little.
        self.slowness = min(2.0, slowness())

    def script(
        self, name: str, text: str = SCRIPT, python: Path | str = sys.executable, **wanted: Any
    ) -> list[str]:
        """Run the script; return the ids of its computations, in order."""
        file = self.folder / "work.py"
        file.write_text(text)
        values = USUAL | {"name": name} | wanted
        values["seconds"] *= self.slowness
        differs = self.folder / "differs"
        differs.unlink(missing_ok=True)
        ended = subprocess.run(
            [python, file, json.dumps(values)],
            env={
                **os.environ,
                "DASK_DASKSCOPE__ENDPOINT": self.service.url,
                "DASK_DASKSCOPE__TOKEN": self.token,
                **counted_preload.beside(differs),
            },
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        counted_preload.assert_equal(differs)
        clusters = self.answer("clusters", limit="1")["items"]
        items = self.answer("computations", cluster=clusters[0]["id"])["items"]
        assert len(items) == values["runs"]
        assert {item["status"] for item in items} == {"finished"}
        return [item["id"] for item in items][::-1]

    def undisturbed(
        self, name: str, text: str = SCRIPT, python: Path | str = sys.executable, **wanted: Any
    ) -> str:
        """Run it some times; return the shortest, with which this machine interfered least."""
        return self.shortest(self.script(name, text, python, runs=3, **wanted))

    def shortest(self, ids: list[str]) -> str:
        items = self.answer("computations", limit="100")["items"]
        took = {item["id"]: item["duration"] for item in items}
        return min(ids, key=took.__getitem__)


@pytest.fixture
def rounds(shared_service: ServiceProcess) -> Iterator[Rounds]:
    # Not pytest's own folder: Dask takes no file below a "pytest" for a user's code.
    with TemporaryDirectory() as folder:
        yield Rounds(shared_service, Path(folder))


def large_parts(found: Any) -> list[tuple[str, str | None]]:
    """Return the kinds and prefixes of the parts that make much of a difference."""
    return [
        (part["kind"], part["prefix"])
        for part in found["parts"]
        # How long threads or tasks waited also depends on what else this machine does.
        if part["kind"] not in ("idle", "waiting")
        and abs(part["seconds"]) >= 0.2 * abs(found["seconds"])
    ]


def candidates(found: Any) -> list[str]:
    """Return the kinds of what else differs, but for what else this machine did."""
    return [one["kind"] for one in found["candidates"] if one["kind"] != "load"]


def test_what_was_changed_is_named_and_nothing_else(rounds: Rounds) -> None:
    equal = [*rounds.script("usual", runs=8), *rounds.script("again", runs=3)]
    slower = rounds.undisturbed("slower", seconds=0.4)
    more = rounds.undisturbed("more", tasks=64)
    fewer = rounds.undisturbed("fewer", workers=1)
    edited = rounds.undisturbed(
        "edited", SCRIPT.replace("return number\n", "return number  # the same\n")
    )
    called = SCRIPT.replace("    return delayed(sum)", "    tasks += 1\n    return delayed(sum)")
    called_anew = rounds.undisturbed("edited at the call", called)
    rounds.jobs(runs=26)
    [job] = rounds.jobs(runs=26)
    rows = rounds.answer("computations", limit="3")["items"]
    assert job["level"] == "code", [(row["frames"], row["call"]) for row in rows]
    assert job["title"] == "return delayed(sum)(naps).compute()"
    disturbed = 0
    for a, b in pairwise(equal):
        found = rounds.answer("comparisons", a=a, b=b)
        disturbed += found["differs"] and large_parts(found) != []
        assert candidates(found) == []
    # Whatever else this machine does begins and ends with some.
    assert disturbed <= 4
    base = rounds.shortest(equal)

    def compare(b: str) -> tuple[Any, list[tuple[str, str | None]]]:
        found = rounds.answer("comparisons", a=base, b=b)
        total = sum(part["seconds"] for part in found["parts"])
        assert total == pytest.approx(found["seconds"], abs=1e-6)
        return found, large_parts(found)

    found, large = compare(slower)
    assert large == [("each", "nap")], found["parts"]
    assert "in what each task of nap takes" in found["sentence"]
    assert candidates(found) == []
    found, large = compare(more)
    assert large == [("tasks", "nap")], found["parts"]
    assert "from the number of tasks of nap (32 → 64)" in found["sentence"]
    found, large = compare(fewer)
    assert large == [("threads", None)], found["parts"]
    assert "from the number of threads (4 → 2)" in found["sentence"]
    assert {*candidates(found)} <= {"workers", "place"}
    # An edit that changes no time: it is no candidate for a difference that there is not.
    for id in (edited, called_anew):
        found, _ = compare(id)
        assert not found["differs"], found["sentence"]
    assert candidates(found) == ["code"]
    assert "+    tasks += 1" in found["code"][0]["diff"].splitlines()


#: As SCRIPT, but each task uses pandas.
WITH_PANDAS = SCRIPT.replace(
    "import json, sys, time", "import json, sys, time\nimport pandas"
).replace("    return number\n", "    return int(pandas.Series([number]).sum())\n")


def test_another_pandas_is_named_and_nothing_else(rounds: Rounds) -> None:
    python = python_with_other_pandas()
    rounds.script("usual", WITH_PANDAS, runs=5)
    base = rounds.undisturbed("base", WITH_PANDAS)
    other = rounds.undisturbed("another pandas", WITH_PANDAS, python)
    [job] = rounds.jobs(runs=11)
    assert job["level"] == "code"
    found = rounds.answer("comparisons", a=base, b=other)
    here = version("pandas")
    [one] = [one for one in found["candidates"] if one["kind"] != "load"]
    assert (one["kind"], one["what"], one["before"]) == ("version", "pandas", here)
    assert one["after"] not in (None, here)
    assert not found["differs"], found["sentence"]


#: As SCRIPT, but each task returns 4 MB, workers are processes, and they have a slow disk.
WITH_DATA = (
    SCRIPT.replace("    return number\n", "    return bytes(4_000_000)\n")
    .replace("delayed(sum)(naps)", "delayed(sizes)(naps)")
    .replace("processes=False,", "memory_limit=wanted['memory'],")
    .replace(
        "def work(",
        """
def sizes(parts):
    return sum(map(len, parts))

def slowly(method):
    def of_a_disk(self, *args):
        time.sleep(0.2)
        return method(self, *args)
    return of_a_disk

zict.File.__getitem__ = slowly(zict.File.__getitem__)
zict.File.__setitem__ = slowly(zict.File.__setitem__)
memory = {"target": 0.9, "spill": False, "pause": False, "terminate": False}
dask.config.set({"distributed.worker.memory." + name: value for name, value in memory.items()})

def work(""",
    )
    .replace("import json, sys, time\n", "import json, sys, time\nimport dask\nimport zict\n")
)


def test_a_spill_is_named_and_nothing_else(rounds: Rounds) -> None:
    usual: dict[str, Any] = {"tasks": 24, "workers": 1, "memory": 2**40}
    rounds.script("usual", WITH_DATA, runs=5, **usual)
    base = rounds.undisturbed("base", WITH_DATA, **usual)
    # Room for eight results.
    spilled = rounds.undisturbed("spilled", WITH_DATA, **usual | {"memory": 36_000_000})
    rounds.jobs(runs=11)
    found = rounds.answer("comparisons", a=base, b=spilled)
    assert found["differs"], found["sentence"]
    assert "in writing to disk and reading back" in found["sentence"], found["parts"]
    assert {*large_parts(found)} == {("disk", None)}, found["parts"]
    assert {*candidates(found)} <= {"place"}, found["candidates"]
