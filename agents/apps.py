from django.apps import AppConfig


class AgentsConfig(AppConfig):
    name = "agents"
    verbose_name = "Control plane"

    def ready(self) -> None:
        """Tell the content store which of its blobs the control plane's rows still name."""
        from agents.content_store import column_references, register_references
        from agents.models import Approval, ParkedCall, Run

        for column in ("arguments_digest", "decided_digest", "reason_digest", "outcome_digest"):
            register_references(
                f"approval.{column}", column_references(Approval, column, "organization_id")
            )
        register_references(
            "parked.outcome",
            column_references(ParkedCall, "outcome_digest", "run__organization_id"),
        )
        register_references(
            "run.definition", column_references(Run, "definition_digest", "organization_id")
        )
