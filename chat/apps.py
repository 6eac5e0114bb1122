from django.apps import AppConfig


class ChatConfig(AppConfig):
    name = "chat"

    def ready(self) -> None:
        """Register what the layers below ask their users for."""
        from agents.content_store import (
            column_references,
            register_content_source,
            register_erasures,
            register_references,
        )
        from agents.lifecycle import register_sweep
        from chat.models import ChatToken
        from chat.selectors.erased import named_by_erased
        from chat.selectors.texts import event_texts, thread_texts
        from chat.services.terminal import sweep_ends
        from chat.services.threads import sweep_erased
        from chat.services.tokens import forget_expired_tokens

        register_references(
            "chat_token.display_name", column_references(ChatToken, "display_name_digest")
        )
        register_erasures("threads", named_by_erased)
        register_content_source("session_events", event_texts)
        register_content_source("thread_texts", thread_texts)
        register_sweep("run_ends", sweep_ends)
        register_sweep("erased_threads", sweep_erased)
        register_sweep("chat_tokens", forget_expired_tokens)
