"""Raw SQL reads what the ORM wrote and the other way round, on the engine of this run."""

from __future__ import annotations

import datetime as dt
import uuid
from types import SimpleNamespace

import pytest
from django.db import connections
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from agents import clock, sql
from agents.models import Boot, Connector, Organization, Tool

pytestmark = pytest.mark.django_db(databases="__all__")

TIMES = [
    dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC),
    dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    dt.datetime(2026, 1, 2, 3, 4, 5, 100, tzinfo=dt.timezone(dt.timedelta(hours=5))),
]


@pytest.mark.parametrize("moment", TIMES, ids=str)
def test_a_row_of_the_orm_is_found_and_read(moment: dt.datetime) -> None:
    boot = Boot.objects.create(pid=1, host="h", role="web", heartbeat_at=moment)
    with connections["default"].cursor() as cursor:
        row = sql.one(
            cursor,
            "SELECT id, heartbeat_at FROM agents_boot WHERE id = %s AND heartbeat_at = %s",
            [boot.pk, moment],
        )
    assert row is not None
    assert sql.read_uuid(row[0]) == boot.pk
    assert sql.read_dt(row[1]) == moment


@pytest.mark.parametrize("moment", TIMES, ids=str)
def test_a_row_of_raw_sql_is_read_by_the_orm(moment: dt.datetime) -> None:
    boot = Boot.objects.create(pid=1, host="h", role="web")
    statement = "UPDATE agents_boot SET heartbeat_at = %s WHERE id = %s AND ended_at IS NULL"
    with connections["default"].cursor() as cursor:
        assert sql.changed(cursor, statement, [moment, boot.pk]) == 1
        assert sql.changed(cursor, statement, [moment, uuid.uuid4()]) == 0
    assert Boot.objects.get(heartbeat_at=moment).heartbeat_at == moment
    assert Boot.objects.filter(heartbeat_at__lt=moment).count() == 0


def test_json_and_booleans_mean_the_same() -> None:
    organization = Organization.objects.create(name="Acme", slug="acme")
    connector = Connector.objects.create(organization=organization, name="C", slug="c")
    tool = Tool.objects.create(connector=connector, name="t", exposed_name="c__t", digest="0")
    with connections["default"].cursor() as cursor:
        sql.execute(
            cursor,
            "UPDATE agents_tool SET input_schema = %s WHERE id = %s",
            [{"type": "object", "q": ["ü", None]}, tool.pk],
        )
        sql.execute(cursor, "UPDATE agents_connector SET enabled = %s", [False])
        ((schema, enabled),) = sql.every(
            cursor,
            "SELECT t.input_schema, c.enabled FROM agents_tool t "
            "JOIN agents_connector c ON c.id = t.connector_id",
        )
    tool.refresh_from_db()
    assert tool.input_schema == sql.read_json(schema) == {"type": "object", "q": ["ü", None]}
    assert sql.read_bool(enabled) is False
    assert not Connector.objects.get().enabled


def test_sealed_bytes_come_back_whole() -> None:
    organization = Organization.objects.create(name="Acme", slug="acme")
    connector = Connector(organization=organization, name="C", slug="c")
    connector.seal_value("credential", "secret")
    connector.save()
    with connections["default"].cursor() as cursor:
        row = sql.one(cursor, "SELECT credential FROM agents_connector")
    assert row is not None
    assert sql.read_bytes(row[0]) == connector.credential


EARLIEST, LATEST = dt.datetime(2000, 1, 1), dt.datetime(2100, 1, 1)  # noqa: DTZ001
TIME = st.datetimes(EARLIEST, LATEST, timezones=st.timezones())


@given(TIME, TIME)
def test_times_sort_as_their_text_does(one: dt.datetime, other: dt.datetime) -> None:
    sqlite = SimpleNamespace(vendor="sqlite")
    texts = [str(sql.param_dt(sqlite, moment)) for moment in (one, other)]  # type: ignore[arg-type]
    assert (texts[0] < texts[1]) == (one < other)


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValueError, match="naive"):
        sql.param_dt(connections["default"], dt.datetime(2026, 1, 1))  # noqa: DTZ001


def test_the_databases_clock_can_be_shifted_in_one_place() -> None:
    before = clock.database_now()
    assert before.tzinfo is dt.UTC
    assert abs(before - timezone.now()) < dt.timedelta(seconds=5)
    with clock.shifted(dt.timedelta(minutes=15)):
        later = clock.database_now()
        with connections["default"].cursor() as cursor:
            assert clock.now(cursor) >= later
    assert later - before >= dt.timedelta(minutes=15)
    assert clock.database_now() < later
