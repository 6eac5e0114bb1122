from django.apps import AppConfig


class DefinitionsConfig(AppConfig):
    name = "definitions"

    def ready(self) -> None:
        """Tell the content store which definitions drafts and versions still name."""
        from agents.content_store import column_references, register_references
        from definitions.models import Draft, Version

        for model in (Draft, Version):
            register_references(
                f"definition.{model.__name__.lower()}",
                column_references(model, "digest", "agent__organization_id"),
            )
