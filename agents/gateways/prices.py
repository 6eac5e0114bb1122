"""What a call cost, in integer micro-dollars, or None when no price is certain."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any, TypeGuard

from agents.gateways.request_rows import Spending
from agents.policy import ModelRow

#: The largest number that a column of both engines holds; sums stop there.
MAX_AMOUNT = 2**63 - 1
TOKENS_PER_RATE = 1_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. ``input`` includes what was read from and written to a cache."""

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """Micro-dollars per million tokens."""

    input: int
    output: int
    cache_read: int
    cache_write: int

    def cost(self, usage: Usage) -> int:
        """Rounded up, and never beyond MAX_AMOUNT."""
        plain = max(0, usage.input - usage.cache_read - usage.cache_write)
        total = (
            plain * self.input
            + usage.cache_read * self.cache_read
            + usage.cache_write * self.cache_write
            + usage.output * self.output
        )
        return min(MAX_AMOUNT, -(-total // TOKENS_PER_RATE))


def read_usage(reported: Any, *, had_output: bool) -> Usage | None:
    """A provider's usage object, if it can be believed; else None.

    Both counts must be integers >= 0; all zero although output came counts as absent. Cache
    counts that do not fit into the input are ignored.
    """
    if not isinstance(reported, dict):
        return None
    tokens_in, tokens_out = reported.get("prompt_tokens"), reported.get("completion_tokens")
    if not _is_count(tokens_in) or not _is_count(tokens_out):
        return None
    if tokens_in == tokens_out == 0 and had_output:
        return None
    details = reported.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    read, written = details.get("cached_tokens", 0), details.get("cache_write_tokens", 0)
    read = read if _is_count(read) else 0
    written = written if _is_count(written) else 0
    if read + written > tokens_in:
        read = written = 0
    return Usage(tokens_in, tokens_out, read, written)


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MAX_AMOUNT


def spending(model: ModelRow, usage: Usage | None) -> Spending | None:
    """What the closing of the row asks for: both counts and the cost. Prices are the hop's."""
    if usage is None:
        return None
    return lambda: (usage.input, usage.output, cost_of(model, usage))


def cost_of(model: ModelRow, usage: Usage) -> int | None:
    """By the operator's newest rate card when it is for this upstream model, else as published."""
    card = model.rate_card
    if card is not None and card[0] == model.upstream_model:
        return Rates(*card[1:]).cost(usage)
    return published_cost(model.pricing_reference, usage)


def published_cost(reference: str, usage: Usage) -> int | None:
    """The cost by the bundled price list, for an exact ``provider:model`` only."""
    if not reference or not is_published(reference):
        return None
    from genai_prices import Usage as ListUsage
    from genai_prices import calc_price

    provider, _, name = reference.partition(":")
    try:
        price = calc_price(
            ListUsage(
                input_tokens=usage.input,
                output_tokens=usage.output,
                cache_read_tokens=usage.cache_read or None,
                cache_write_tokens=usage.cache_write or None,
            ),
            name,
            provider_id=provider,
        )
    except (LookupError, ValueError, ArithmeticError):
        return None
    micro = (price.total_price * Decimal(1_000_000)).to_integral_value(rounding=ROUND_CEILING)
    return min(MAX_AMOUNT, int(micro))


@functools.lru_cache(maxsize=1_024)
def is_published(reference: str) -> bool:
    """Whether the bundled list prices exactly this model of exactly this provider.

    The list also answers for names that merely resemble one of its own, for models of another
    provider, and with an empty price: none of those is a price.
    """
    from genai_prices import Usage as ListUsage
    from genai_prices import calc_price

    provider, _, name = reference.partition(":")
    try:
        found = calc_price(ListUsage(input_tokens=1, output_tokens=1), name, provider_id=provider)
    except (LookupError, ValueError):
        return False
    price = found.model_price
    return (
        found.model.id == name.lower()
        and found.provider.id == provider
        and any(model is found.model for model in found.provider.models)
        and price.input_mtok is not None
        and price.output_mtok is not None
    )
