"""Pages say what they show in words that a user of Dask knows, and lead to their parts."""

from __future__ import annotations

import re
import time

import pytest
import requests

from tests.seed import Seeded, seed
from tests.service.beats import make_beat, make_cluster, make_computation, make_failure, post
from tests.service.pages import words
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

#: What readers asked about, or took for something else.
PUZZLING = (
    "off the CPU",
    "waiting for a thread",
    "not attributed",
    "Thread-seconds",
    "task run erred",
    "task runs erred",
    "allow-listed",
    "call in progress",
    "calls in progress",
    "the middle one",
    "over OTLP",
)
#: As they are shown in bars' legends, with the amount behind.
PUZZLING_LABELS = ("other", "executor", "unattributed")


class Pages:
    """The pages of a seeded workspace, as a reader gets them."""

    def __init__(self, service: ServiceProcess) -> None:
        self.service, workspace = service, "plain-words"
        self.seeded: Seeded = seed(service.engine, workspace, time.time())
        self.token = service.token(scopes=["ingest", "read"], workspace=workspace)
        self.session = requests.Session()
        sign_in = {"token": self.token}
        self.session.post(f"{service.url}/sign-in", data=sign_in, timeout=30)

    def get(self, path: str) -> str:
        answer = self.session.get(self.service.url + path, timeout=30)
        assert answer.ok, (path, answer.status_code)
        return words(answer.text)

    def paths(self) -> list[str]:
        seeded = self.seeded
        clusters = (seeded.running, seeded.stopped, seeded.lost, seeded.secretive)
        return [
            *("/", "/clusters", "/computations", "/exceptions", "/events", "/logs", "/people"),
            *("/findings", "/jobs", "/repeats", "/settings/prices", "/settings/thresholds"),
            "/settings/retention",
            *(f"/clusters/{id}" for id in clusters),
            *(f"/clusters/{on}/computations/{id}" for on, id in seeded.computations.values()),
            *(f"/exceptions/{fingerprint}" for fingerprint in seeded.fingerprints),
        ]


@pytest.fixture(scope="module")
def pages(shared_service: ServiceProcess) -> Pages:
    return Pages(shared_service)


def test_pages_have_no_words_that_puzzle(pages: Pages) -> None:
    found = []
    for path in pages.paths():
        page = pages.get(path)
        said = re.sub(r"<(pre|code)\b.*?</\1>", "", page)
        found += [(path, word) for word in PUZZLING if word in said]
        labels = re.findall(r"</svg>([^<]*) <b>", said)
        found += [(path, label) for label in labels if label in PUZZLING_LABELS]
    assert found == []


def test_the_page_of_a_cluster_leads_to_its_parts(pages: Pages) -> None:
    seeded = pages.seeded
    for id in (seeded.running, seeded.stopped, seeded.lost):
        page = pages.get(f"/clusters/{id}")
        contents = re.search(r'aria-label="On this page">(.*?)</nav>', page)
        assert contents is not None, id
        named = re.findall(r'href="#(h-[a-z]+)"', contents[1])
        there = re.findall(r'<h2 id="(h-[a-z]+)"', page)
        assert named == [one for one in there if one != "h-charts"], id


def test_prices_of_a_cluster_are_said_as_on_the_page_of_prices(pages: Pages) -> None:
    page = pages.get(f"/clusters/{pages.seeded.running}")
    assert "for an hour of a thread" in page


def test_exceptions_are_filtered_and_sorted(pages: Pages) -> None:
    service, token = pages.service, pages.token
    for name, kinds in (("seldom", {"1:rare": 1}), ("often", {"1:often": 70_000, "1:mid": 60_000})):
        beat = make_beat(
            make_cluster(f"Scheduler-{name}", name=f"fails-{name}", user=name),
            computations=(make_computation("c"),),
            failures=tuple(
                make_failure(computation="c", fingerprint=fingerprint, count=count)
                for fingerprint, count in kinds.items()
            ),
        )
        assert post(service.url, token, beat).ok

    def shown(query: str) -> list[str]:
        return re.findall(r'<tr id="f-([^"]+)"', pages.get(f"/exceptions?{query}"))

    assert shown("cluster=fails-seldom") == ["1:rare"]
    assert set(shown("user=often")) == {"1:often", "1:mid"}
    assert shown("sort=times")[:2] == ["1:often", "1:mid"]
    assert shown("sort=times&limit=1") == ["1:often"]
    # An empty field says nothing, and the form keeps what was chosen.
    page = pages.get("/exceptions?cluster=fails-often&user=&sort=times")
    assert 'value="fails-often"' in page
    assert '<option value="times" selected>' in page

    def listed(**parameters: str) -> list[tuple[str, str | None]]:
        answer = requests.get(
            f"{service.url}/api/v1/exceptions",
            params={"limit": "1", "cluster": "fails-often", **parameters},
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
        )
        assert answer.ok, answer.text
        found = answer.json()
        return [(one["fingerprint"], found["next"]) for one in found["items"]]

    ((first, next),) = listed(sort="times")
    assert (first, next is not None) == ("1:often", True)
    assert listed(sort="times", cursor=str(next)) == [("1:mid", None)]
    csv = pages.get("/exceptions.csv?cluster=fails-often&sort=times")
    assert csv.index("1:often") < csv.index("1:mid")
