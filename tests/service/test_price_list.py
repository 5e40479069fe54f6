"""The operator's price list of machines: what it may contain, and the costs that come of it."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from daskscope.errors import ConfigurationError
from daskscope.protocol import InstanceUse, Prices
from daskscope_service.costs.price_list import MachinePrice, PriceList, read
from tests.service.beats import make_beat, make_cluster, make_status, post
from tests.service.conftest import NewDatabase
from tests.service.pages import words
from tests.service.people import browser_of, make_user
from tests.service_process import ServiceProcess

HOUR = 3600.0
LIST = """\
# On-demand, July
type,price,threads,gib

m5.large,0.1,2,8
c5.4xlarge,0.8
"""
#: Four hours of two machines, which have one worker of two threads and 8 GiB each.
LARGE = InstanceUse("m5.large", 8 * HOUR, 16 * HOUR, 64 * HOUR)


def _file(folder: Path, text: str) -> Path:
    path = folder / "prices.csv"
    path.write_text(text)
    return path


def test_a_list_has_prices_by_type_and_may_have_the_sizes_of_machines(tmp_path: Path) -> None:
    found = read(_file(tmp_path, LIST), "USD")
    assert found == PriceList(
        "USD", {"m5.large": MachinePrice(0.1, 2.0, 8.0), "c5.4xlarge": MachinePrice(0.8)}
    )


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "the first line must name the columns: type,price,threads,gib"),
        ("machine,price\n", 1, "the first line must name the columns"),
        ("type,price\nm5.large,cheap\n", 2, "price is 'cheap'; it must be a number from 0 to"),
        ("type,price\n\nm5.large\n", 3, "price is ''; it must be a number"),
        ("type,price,gib\nm5.large,0.1,0\n", 2, "gib is '0'; it must be a number from 0.001 to"),
        ("type,price\nm5.large,nan\n", 2, "price is 'nan'"),
        ("type,price\nm5.large,1\nm5.large,2\n", 3, "type 'm5.large' has a line already"),
        ("type,price,gib,gib\n", 1, "the first line must name the columns"),
        ('type,price\n"m5\nlarge",1\nm5.large,x\n', 4, "price is 'x'"),
        ("type,price\n,1\n", 2, "type has 0 characters"),
        ("type,price\nm5.large,0,1\n", 2, "has 3 fields, but the first line 2"),
    ],
)
def test_an_error_names_the_line_and_the_field(
    tmp_path: Path, text: str, line: int, said: str
) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(ConfigurationError) as raised:
        read(path, "USD")
    assert str(raised.value).startswith(f"DASKSCOPE_PRICE_LIST, {path}, line {line}: {said}")
    with pytest.raises(ConfigurationError, match="No such file"):
        read(tmp_path / "none.csv", "USD")


def test_workers_pay_for_their_share_of_a_machine_or_for_all_of_it() -> None:
    sized, whole = MachinePrice(0.1, 2.0, 8.0), MachinePrice(0.1)
    assert sized.of(LARGE) == pytest.approx(0.8)
    # A pod with half of the threads and a quarter of the memory.
    pod = InstanceUse("m5.large", 8 * HOUR, 8 * HOUR, 16 * HOUR)
    assert sized.of(pod) == pytest.approx(0.4)
    assert whole.of(pod) == pytest.approx(0.8)
    # More threads than the machine has do not cost more than the machine.
    many = InstanceUse("m5.large", 8 * HOUR, 99 * HOUR, 64 * HOUR)
    assert sized.of(many) == pytest.approx(0.8)


def test_a_cluster_with_machines_that_are_not_listed_has_no_cost_by_the_list() -> None:
    prices = PriceList("USD", {"m5.large": MachinePrice(0.1)})
    other = InstanceUse("c5.large", 1 * HOUR, 2 * HOUR, 8 * HOUR)
    assert prices.cost([LARGE, other], 18 * HOUR) is None
    assert prices.cost([], 16 * HOUR) is None
    # Workers that left before they had reported are priced as the others.
    assert prices.cost([LARGE], 16.5 * HOUR) == pytest.approx(0.8 * 16.5 / 16)


class Place:
    """A service with a price list, and its default workspace."""

    def __init__(self, service: ServiceProcess) -> None:
        self.service = service
        self.token = service.token(scopes=["ingest", "read"])
        self.owner = browser_of(service, make_user(service, {"default": "owner"}).name)

    def beat(self, id: str, **fields: Any) -> None:
        """Send a cluster that had two threads for eight hours each on machines that are listed."""
        now = time.time()
        status = make_status(
            at=now,
            worker_seconds={"busy": 12 * HOUR, "idle": 4 * HOUR},
            gib_seconds=64 * HOUR,
            instances=fields.pop("instances", (LARGE,)),
            cost=fields.pop("cost", None),
            stopped_at=now,
        )
        seq = fields.pop("seq", 1)
        cluster = make_cluster(id, started_at=now - 1, **({"prices": None} | fields))
        assert post(self.service.url, self.token, make_beat(cluster, seq, status=status)).ok

    def get(self, path: str, **parameters: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.service.url}/api/v1/{path}"
        answer = requests.get(url, params=parameters, headers=headers, timeout=30)
        assert answer.ok, answer.text
        return answer.json()

    def see(self, path: str) -> str:
        return words(self.owner.get(self.service.url + path, timeout=30).text)


@pytest.fixture
def place(tmp_path: Path, new_database: NewDatabase) -> Iterator[Place]:
    path = _file(tmp_path, LIST)
    with ServiceProcess(
        tmp_path / "service",
        database_url=new_database(),
        price_list=path,
        prices_currency="EUR",
    ) as service:
        yield Place(service)


def test_costs_are_by_the_list_unless_someone_has_set_prices(place: Place) -> None:
    place.beat("Scheduler-listed")
    place.beat("Scheduler-own", prices=Prices("USD", {"thread": 1.0}), cost=16.0)
    place.beat("Scheduler-other", instances=(InstanceUse("x", HOUR, HOUR, HOUR),))
    found = {one["id"]: one for one in place.get("clusters")["items"]}
    listed = found["Scheduler-listed"]
    assert listed["cost"] == pytest.approx(0.8)
    assert listed["idle_cost"] == pytest.approx(0.2)
    assert (listed["price_source"], listed["prices"]["currency"]) == ("instances", "EUR")
    assert listed["prices"]["per_hour"] == {"thread": pytest.approx(0.05)}
    assert listed["instances"][0]["type"] == "m5.large"
    assert found["Scheduler-own"]["price_source"] == "cluster"
    assert found["Scheduler-other"]["price_source"] == "list"
    by_cost = place.owner.get(f"{place.service.url}/clusters.csv?sort=cost", timeout=30).text
    ids = [one["id"] for one in csv.DictReader(by_cost.splitlines())]
    assert ids == ["Scheduler-own", "Scheduler-listed", "Scheduler-other"]
    page = place.see("/clusters/Scheduler-listed")
    assert '0.80 EUR</dd><dd class="faint"> estimate by the price list of machines' in page
    assert "8.0 h of m5.large" in page
    used = {one["price_source"]: one["cost"] for one in place.get("usage", weeks=2)["items"]}
    assert used["instances"] == pytest.approx(0.8)
    people = place.see("/people")
    assert "a price list of machines, in EUR" in people
    budget = {"amount": 0.5, "currency": "EUR"}
    api = f"{place.service.url}/api/v1"
    assert place.owner.put(f"{api}/budget", json=budget, timeout=30).ok
    [spent] = place.get("budgets")["items"]
    assert spent["spent"] == pytest.approx(0.8)
    # A workspace's own prices come first, and none end the costs.
    for body, source in (
        ({"currency": "USD", "per_hour": {"thread": 1.0}}, "workspace"),
        ({"currency": "USD", "per_hour": {}}, None),
    ):
        assert place.owner.put(f"{api}/prices", json=body, timeout=30).ok
        assert place.get("clusters/Scheduler-listed")["price_source"] == source
