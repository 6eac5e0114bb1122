"""Plain words for the codes with which a run may fail. The code is the contract, not the words."""

from __future__ import annotations

UNKNOWN = "The run failed. Try again; if it fails again, ask the people who manage this agent."

WORDS = {
    "interrupted_by_restart": (
        "The server restarted while the agent was working. What was said so far is kept; send "
        "your message again."
    ),
    "runtime_unavailable": "The agent cannot run right now. Try again in a moment.",
    "runtime_lost": "The connection to the running agent was lost. Send your message again.",
    "deadline": "The agent worked longer than a run may take and was stopped.",
    "key_expired": "The agent worked longer than a run may take and was stopped.",
    "key_invalid": "The agent's permission to work ended while it was working.",
    "unpublished": "The agent was unpublished while it was working.",
    "suspended": "The agent was suspended while it was working.",
    "published": "Another version of the agent was published while it was working.",
    "grant_revoked": "A permission that this run needs was taken away from the agent.",
    "not_published": "Nothing is published for this agent here any more.",
    "out_of_scope": "The agent tried to use something that it has no permission for.",
    "model_disabled": "The agent's model was switched off.",
    "model_not_granted": "The agent has no permission to use its model here.",
    "content_damaged": "Stored content is unreadable. An operator has to look at it.",
    "history_unreadable": "Stored content is unreadable. An operator has to look at it.",
    "input_too_large": "The conversation is longer than the agent's model accepts. Start a new one.",
    "output_limit": "The answer exceeded the length that the agent's model may write.",
    "no_output": "The model gave no answer. Try again or put it differently.",
    "step_limit": "The agent took more steps than a run may have and was stopped.",
    "nothing_to_run": "There was nothing left to do.",
    "model_failed": "The model did not give a usable answer. Try again.",
    "provider_error": "The model's provider failed. Try again in a moment.",
    "provider_timeout": "The model's provider did not answer in time. Try again in a moment.",
    "provider_rate_limited": "The model's provider is busy. Try again in a moment.",
    "provider_refused": "The model's provider refused the request.",
    "provider_auth": "The model's provider does not accept the stored credential.",
    "overloaded": "Too much is going on right now. Try again in a moment.",
    "store_unavailable": "The database does not answer. Try again in a moment.",
    "shutting_down": "The server was stopped in the middle. Try again in a moment.",
}


def in_words(code: str) -> str:
    """What a person is told about a failed run."""
    return WORDS.get(code, UNKNOWN)
