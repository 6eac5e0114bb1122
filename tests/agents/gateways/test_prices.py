"""What a call cost: by the operator's fitting rate card, by an exact published price, or unknown."""

from __future__ import annotations

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from agents.digests import credential_mac
from agents.gateways.prices import (
    MAX_AMOUNT,
    Rates,
    Usage,
    cost_of,
    is_published,
    published_cost,
    read_usage,
)
from agents.models import VirtualModel
from agents.selectors.rights import read_key_and_model
from agents.services import resources
from tests.world import World, make_world

COUNT = st.integers(min_value=0, max_value=MAX_AMOUNT)


def cost(world: World, model: VirtualModel, usage: Usage) -> int | None:
    """The cost by the rows that a call of the world's key reads."""
    with connection.cursor() as cursor:
        found = read_key_and_model(
            cursor, mac=credential_mac(world.key_text), model_slug=model.slug
        )
    assert found is not None
    return cost_of(found[1], usage)


def add_card(world: World, model: VirtualModel, rate: int) -> None:
    resources.add_rate_card(
        actor=world.operator,
        model=model,
        input_rate=rate,
        output_rate=rate,
        cache_read_rate=0,
        cache_write_rate=0,
        rationale="New price.",
    )


@pytest.mark.django_db(databases="__all__")
def test_the_newest_rate_card_counts() -> None:
    world = make_world()
    usage = Usage(input=1_000_000, output=500_000)
    assert cost(world, world.model, usage) == 2_000_000
    add_card(world, world.model, 3_000_000)
    assert cost(world, world.model, usage) == 4_500_000
    add_card(world, world.model, 0)
    assert cost(world, world.model, usage) == 0


@pytest.mark.django_db(databases="__all__")
def test_a_card_for_another_upstream_model_is_no_price() -> None:
    world = make_world()
    model = resources.change_virtual_model(
        actor=world.operator, model=world.model, upstream_model="gpt-other"
    )
    assert cost(world, model, Usage(1, 1)) is None
    model = resources.change_virtual_model(
        actor=world.operator, model=model, pricing_reference="openai:gpt-4o"
    )
    assert cost(world, model, Usage(input=1_000_000, output=1_000_000)) == 12_500_000


@pytest.mark.django_db(databases="__all__")
def test_a_model_without_any_price_has_no_cost() -> None:
    world = make_world()
    assert cost(world, world.add_model("unpriced"), Usage(1, 1)) is None


def test_cache_tokens_have_their_own_rates_and_the_sum_is_rounded_up() -> None:
    rates = Rates(input=1_000_000, output=2_000_000, cache_read=100_000, cache_write=1_250_000)
    assert rates.cost(Usage(input=100, output=10, cache_read=40, cache_write=20)) == 89
    assert rates.cost(Usage(input=1, output=0)) == 1
    assert Rates(1, 1, 1, 1).cost(Usage(input=1, output=0)) == 1
    assert Rates(0, 0, 0, 0).cost(Usage(input=1, output=1)) == 0


@pytest.mark.parametrize(
    ("reference", "exact"),
    [
        ("openai:gpt-4o", True),
        ("anthropic:claude-sonnet-4-5", True),
        ("anthropic:claude-sonnet-4-5-foo", False),  # the list would price its prefix
        ("azure:gpt-4o-no-such", False),
        ("openai:gpt-5.9-super", False),
        ("nobody:gpt-4o", False),
        ("gpt-4o", False),
        (":", False),
        ("openai:", False),
        ("cerebras:qwen-3-coder-480b", False),  # the list has it with an empty price
    ],
)
def test_only_an_exact_published_price_counts(reference: str, exact: bool) -> None:
    assert is_published(reference) is exact
    assert (published_cost(reference, Usage(1_000, 1_000)) is not None) is exact


@given(COUNT, COUNT, COUNT, COUNT)
def test_a_cost_is_never_negative_nor_too_large_to_store(
    tokens_in: int, tokens_out: int, read: int, rate: int
) -> None:
    usage = read_usage(
        {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "prompt_tokens_details": {"cached_tokens": read},
        },
        had_output=False,
    )
    assert usage is not None
    assert usage.cache_read <= usage.input
    assert 0 <= Rates(rate, rate, rate, rate).cost(usage) <= MAX_AMOUNT


@pytest.mark.parametrize("details", [None, 7, [], {"cached_tokens": "many"}, {"cached_tokens": 99}])
def test_cache_counts_that_do_not_fit_are_ignored(details: object) -> None:
    reported = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": details}
    assert read_usage(reported, had_output=True) == Usage(input=5, output=1)


def test_zero_usage_counts_only_without_output() -> None:
    zero = {"prompt_tokens": 0, "completion_tokens": 0}
    assert read_usage(zero, had_output=False) == Usage(0, 0)
    assert read_usage(zero, had_output=True) is None
