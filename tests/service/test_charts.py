"""The charts of a cluster as the page and the script get them, over seeded series."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import requests

from daskscope import names
from daskscope_service.insight.verdict import why_running
from daskscope_service.pages.chart_svg import marks_picture, picture
from daskscope_service.pages.charts import Chart, ChartSource, Drawn, Plot, read_plots
from daskscope_service.pages.period import Period
from daskscope_service.queries.chart_annotations import MOST_MARKS, ChartMark
from daskscope_service.telemetry.store import SeriesLine
from tests.seed_series import series
from tests.seed_writer import SeedWriter
from tests.service.pages import words
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

NOW = time.time()
WORKSPACE = "charts"
Ask = Callable[..., requests.Response]


@pytest.fixture(scope="module", autouse=True)
def _now() -> None:
    """Begin now: the module may have been imported an hour ago, as the first of many."""
    global NOW
    NOW = time.time()


@pytest.fixture(scope="module")
def ask(shared_service: ServiceProcess) -> Ask:
    """Ask for a page of the seeded workspace."""
    writer = SeedWriter(WORKSPACE, NOW)
    ada: dict[str, Any] = {"user": "ada", "workers": 4}
    writer.cluster("gone", name="gone", started=-9000, stopped=-5400, **ada)
    series(writer, "gone", -9000, -5400, workers=4, gpus=True)
    writer.computation("gone", "c1", "finished", -8900, -8800, None, call=1)
    writer.computation("gone", "c2", "erred", -6000, -5900, None, call=1)
    writer.failure(("gone", "c2"), "1:f", "ValueError", "parse", "no", "trace", 3, -5910)
    writer.loss("gone", "w1", "worker-1", "out of memory", False, -6500, 2, None)
    writer.loss("gone", "w2", "worker-2", "retired", True, -6400, 0, None)
    writer.cluster("up", name="up", started=-7200, **ada)
    series(writer, "up", -7200, -600, workers=4, spills=False)
    writer.computation("up", "long", "running", -7000, None, None, call=1)
    for i in range(MOST_MARKS + 5):
        writer.computation("up", f"c{i}", "finished", -3600 + 20 * i, -3590 + 20 * i, (), call=1)
    writer.write(shared_service.engine)
    session = requests.Session()
    token = shared_service.token(workspace=WORKSPACE)
    session.post(f"{shared_service.url}/sign-in", data={"token": token}, timeout=30)

    def get(cluster: str, part: str = "", status: int = 200, **query: object) -> requests.Response:
        address = f"{shared_service.url}/clusters/{cluster}{part}"
        answer = session.get(address, params={k: str(v) for k, v in query.items()}, timeout=30)
        assert answer.status_code == status, answer.text
        return answer

    return get


def _data(ask: Ask, cluster: str, **query: object) -> dict[str, Any]:
    data: dict[str, Any] = ask(cluster, "/charts", **query).json()
    data["charts"] = {chart["id"]: chart for chart in data["charts"]}
    return data


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def test_all_charts_share_the_time_that_the_address_asks_for(ask: Ask) -> None:
    data = _data(ask, "gone", **{"from": _iso(NOW - 8000), "to": _iso(NOW - 7000)})
    assert (round(data["since"]), round(data["until"])) == (int(NOW - 8000), int(NOW - 7000))
    assert len(data["charts"]) == 9
    for chart in data["charts"].values():
        assert -100 <= chart["times"][0] <= chart["times"][-1] < 10_000, chart["id"]
        assert all(len(line["values"]) == len(chart["times"]) for line in chart["lines"])
    assert data["every"] is None


def test_a_gone_cluster_shows_its_whole_life_and_a_running_one_its_last_hour(ask: Ask) -> None:
    gone, up = _data(ask, "gone"), _data(ask, "up")
    assert gone["until"] - gone["since"] == pytest.approx(3600)
    assert up["until"] - up["since"] == pytest.approx(3600)
    assert (gone["every"], up["every"]) == (None, 11.25)
    assert [link["words"] for link in gone["spans"] if link["current"]] == ["whole life"]
    assert [link["words"] for link in up["spans"] if link["current"]] == ["last hour"]


def test_threads_add_up_to_those_of_the_workers_however_long_the_time(ask: Ask) -> None:
    for query in ({}, {"from": _iso(NOW - 7400), "to": _iso(NOW - 6800)}):
        busy, idle = _data(ask, "gone", **query)["charts"]["threads"]["lines"]
        assert (busy["label"], idle["label"]) == ("busy", "idle")
        sums = [b + i for b, i in zip(busy["values"], idle["values"], strict=True) if b is not None]
        assert sums[20:] == pytest.approx([16] * len(sums[20:]), rel=0.01)


def test_where_nothing_was_measured_no_line_goes_through(ask: Ask) -> None:
    (line, _) = _data(ask, "gone")["charts"]["workers"]["lines"]
    assert line["values"].count(None) == 1
    path = re.search(r'"Workers:.*?<path fill=[^>]* d="([^"]*)"', ask("gone").text, re.S)
    assert path is not None
    assert path[1].count("M") == path[1].count("Z") == 2


def test_gpus_have_charts_only_where_there_ever_were_some(ask: Ask) -> None:
    assert "gpu" not in _data(ask, "up")["charts"]
    before = {"from": _iso(NOW - 9600), "to": _iso(NOW - 9300)}
    assert _data(ask, "gone", **before)["charts"].keys() >= {"workers", "disk"}
    assert _data(ask, "gone", span="quarter")["charts"].keys() >= {"gpu", "gpu-memory"}
    assert "Memory of the GPUs" in ask("gone").text
    assert "Memory of the GPUs" not in ask("up").text


def test_marks_are_what_happened_in_that_time(ask: Ask) -> None:
    marks = _data(ask, "gone")["marks"]
    assert [(kind, round(since - NOW), words) for kind, since, _, words in marks] == [
        ("computation", -8900, "a computation, finished"),
        ("loss", -6500, "worker-1 lost: out of memory"),
        ("computation", -6000, "a computation, erred"),
        ("failure", -5950, "ValueError"),
        ("failure", -5910, "ValueError"),
    ]
    part = _data(ask, "gone", **{"from": _iso(NOW - 8850), "to": _iso(NOW - 8000)})
    assert [kind for kind, *_ in part["marks"]] == ["computation"]  # that had begun before
    page = html.unescape(ask("gone").text)
    for part_words in ("2 computations", "1 group of equal failures", "1 worker lost"):
        assert part_words in page


def test_what_is_too_much_to_mark_is_told(ask: Ask) -> None:
    data = _data(ask, "up", span="life")
    assert len(data["marks"]) == MOST_MARKS
    assert "more computations than the charts mark: only the newest 100 are" in data["notes"]
    late = _data(ask, "up", span="quarter")
    assert [words for _, _, _, words in late["marks"]] == ["a computation, running"]


def test_a_live_chart_says_how_old_its_newest_measurement_is(ask: Ask) -> None:
    assert re.search("The newest measurement is [0-9]+ min .*old", _data(ask, "up")["notes"])
    assert "newest measurement" not in _data(ask, "gone")["notes"]


def test_a_time_that_makes_no_sense_is_refused_with_the_reason(ask: Ask) -> None:
    late, early = _iso(NOW - 6000), _iso(NOW - 7000)
    answer = ask("gone", "/charts", 400, **{"from": late, "to": early})
    assert "must be later than from" in answer.text
    assert "must be a time" in ask("gone", "/charts", 400, **{"from": "yesterday"}).text
    assert "quarter" in ask("gone", "/charts", 400, span="fortnight").text
    ask("nowhere", "/charts", 404)


def test_an_update_of_the_page_leaves_the_charts_to_the_script(
    ask: Ask, shared_service: ServiceProcess
) -> None:
    assert 'class="spark"' in ask("up").text
    with requests.Session() as session:
        token = shared_service.token(workspace=WORKSPACE)
        session.post(f"{shared_service.url}/sign-in", data={"token": token}, timeout=30)
        address = f"{shared_service.url}/clusters/up"
        page = session.get(address, headers={"HX-Request": "true"}, timeout=30).text
    assert 'id="over-time"' in page
    assert 'class="spark"' not in page


def test_of_a_short_life_the_growth_between_its_two_measurements_is_drawn() -> None:
    class Store:
        """Has two measurements, and returns the last one of each step, as stores do."""

        def query(
            self, workspace: str, cluster: str, metrics: set[str], since: float, until: float,
            step: float,
        ) -> dict[str, list[SeriesLine]]:  # fmt: skip
            found: dict[str, list[SeriesLine]] = {name: [] for name in metrics}
            if names.WORKER_TIME.name in metrics:
                last = {
                    at // (1000 * step): (at, total)
                    for at, total in ((11_200, 0.0), (18_400, 28.8))
                }
                times, values = zip(*last.values(), strict=True)
                busy = {names.WORKER_STATE: "busy"}
                found[names.WORKER_TIME.name] = [
                    SeriesLine(busy, "value", "counter", "s", [*times], [*values])
                ]
            return found

    period = Period(10.0, 19.0, 10.0, 19.0, live=False, span="life")
    plots = read_plots(Store(), "w", "c", period, 300, 10.0)  # type: ignore[arg-type]
    (threads,) = (plot for plot in plots if plot.chart.sources[0].metric is names.WORKER_TIME)
    (busy,) = threads.lines
    assert busy.values == [pytest.approx(4.0)]


def test_the_legend_says_how_fast_a_counter_grew_in_the_last_interval_alone() -> None:
    class Store:
        """Has a total every 10 s, and one at the stop, of two threads that ran until 14 s ago."""

        def query(
            self, workspace: str, cluster: str, metrics: set[str], since: float, until: float,
            step: float,
        ) -> dict[str, list[SeriesLine]]:  # fmt: skip
            last: dict[int, float] = {}
            for at in (*range(0, 600, 10), 603, 603.5):
                if since <= at < until:
                    last[round(1000 * (at - at % step))] = 2.0 * min(at, 589.5)
            busy = {names.WORKER_STATE: "busy"}
            line = SeriesLine(busy, "value", "counter", "s", [*last], [*last.values()])
            return {name: [line] if name == names.WORKER_TIME.name else [] for name in metrics}

    period = Period(0.0, 604.0, 0.0, 604.0, live=False, span="life")
    plots = read_plots(Store(), "w", "c", period, 90, 10.0)  # type: ignore[arg-type]
    [threads] = [plot for plot in plots if plot.chart.id == "threads"]
    assert [line.values[30] for line in threads.lines] == [2.0]
    [key] = picture(threads, period).keys
    assert key.value == "0"
    assert "busy 0 at last, 2 at most" in picture(threads, period).sentence


def test_lines_that_stand_on_each_other_are_drawn_behind_those_below() -> None:
    chart = Chart("x", "X", "count", (ChartSource(names.WORKER_COUNT),))
    lines = [
        Drawn("low", "red", True, [1.0, 2.0]),
        Drawn("high", "blue", True, [3.0, 2.0]),
        Drawn("limit", "black", False, [4.0, None]),
    ]
    drawn = picture(Plot(chart, [0.0, 10.0], lines, False), Period(0, 10, 0, 10, False, None))
    assert [curve.line.label for curve in drawn.curves] == ["high", "low", "limit"]
    assert drawn.curves[0].path == "M0 180V0L1000 0V180Z"
    assert drawn.curves[1].path == "M0 180V135L1000 90V180Z"
    assert (drawn.top, drawn.half) == ("4", "2")
    assert [key.value for key in drawn.keys] == ["2", "2", "4"]
    assert drawn.sentence == (
        "X: low 2 at last, 2 at most; high 2 at last, 3 at most; limit 4 at last, 4 at most"
    )


@pytest.mark.parametrize("unit", ["count", "bytes", "bytes/s", "share"])
@pytest.mark.parametrize("value", [5e-324, 1e-315, 1e-300, 1e30])
def test_a_chart_has_a_scale_whatever_its_values(unit: str, value: float) -> None:
    chart = Chart("x", "X", unit, (ChartSource(names.WORKER_COUNT),))
    lines = [Drawn("odd", "red", False, [0.0, value])]
    period = Period(0, 10, 0, 10, False, None)
    assert picture(Plot(chart, [0.0, 10.0], lines, False), period).top


def test_a_line_stays_within_its_chart_whatever_its_values() -> None:
    chart = Chart("x", "X", "bytes", (ChartSource(names.WORKER_COUNT),))
    lines = [Drawn("odd", "red", False, [-1e30, 1e-300])]
    drawn = picture(Plot(chart, [0.0, 10.0], lines, False), Period(0, 10, 0, 10, False, None))
    assert re.findall(r" (\d+)", drawn.curves[0].path)[0] == "180"
    assert all(0 <= int(y) <= 180 for y in re.findall(r" (\d+)", drawn.curves[0].path))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"idle_seconds": None, "held_by": {"running": 96, "processing": 96}},
            "It has work: 96 tasks running.",
        ),
        (
            {
                "idle_seconds": None,
                "held_by": {"clients": 1},
                "busy_by": ["a worker uses the CPU without a task, 98% of a core"],
            },
            "It is at work: a worker uses the CPU without a task, 98% of a core. There is 1 client "
            "connected. It is therefore not closed as idle.",
        ),
        (
            {"held_by": {"other schedulers": 1}},
            "Nothing runs, but there is 1 other scheduler on it, whose tasks cannot be seen. No "
            "idle timeout is set in its settings, so it stays until somebody stops it.",
        ),
        (
            {"held_by": {"clients": 1, "results": 412}},
            "Nothing runs, but there is 1 client connected and 412 results held in memory. No idle "
            "timeout is set in its settings, so it stays until somebody stops it.",
        ),
        (
            {"idle_timeout": 3600.0},
            "Nothing runs, and nothing keeps it. Its idle timeout of 1 h closes it in 50 min.",
        ),
        (
            {"idle_timeout": 60.0},
            "Nothing runs, and nothing keeps it. Its idle timeout of 1 min has passed: it should "
            "close soon.",
        ),
    ],
)
def test_why_a_cluster_is_still_running_is_told_with_numbers(
    fields: dict[str, Any], said: str
) -> None:
    idle: dict[str, Any] = {
        "idle_seconds": 600.0,
        "held_by": {},
        "busy_by": (),
        "idle_timeout": None,
    }
    assert why_running(idle | fields) == said


def test_the_page_tells_why_it_runs_and_which_settings_are_in_force(ask: Ask) -> None:
    page = html.unescape(words(ask("up").text))
    assert "It has work: 96 tasks running." in page
    assert re.search(r"Measures every</dt><dd>10.0 s<.*Idle timeout of its own</dt><dd>not set<",
                     page, re.S)  # fmt: skip
    assert "Why it is still running" not in ask("gone").text


def test_a_mark_has_a_line_from_top_to_bottom_unless_there_are_too_many_to_see_past() -> None:
    period = Period(0, 100, 0, 100, False, None)
    some = [ChartMark("failure", at, at, "ValueError") for at in range(20)]
    many = [ChartMark("loss", at, at, "w lost: killed") for at in range(21)]
    drawn = marks_picture([*some, *many], period)
    assert drawn.failures.startswith("M0.0 0V180M10.0 0V180")
    assert drawn.losses.startswith("M0.0 166V180M10.0 166V180")
    assert len(drawn.signs) == 41
