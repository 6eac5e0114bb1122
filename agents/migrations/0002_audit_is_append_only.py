"""Audit events refuse UPDATE and DELETE in the database itself."""

from django.db import migrations

TABLE = "agents_auditevent"

SQLITE = [
    f"CREATE TRIGGER {TABLE}_no_{verb.lower()} BEFORE {verb} ON {TABLE} "
    f"BEGIN SELECT RAISE(ABORT, '{TABLE} is append-only'); END"
    for verb in ("UPDATE", "DELETE")
]
POSTGRESQL = [
    "CREATE FUNCTION mandate_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$",
    f"CREATE TRIGGER {TABLE}_append_only BEFORE UPDATE OR DELETE ON {TABLE} "
    "FOR EACH ROW EXECUTE FUNCTION mandate_append_only()",
]


def create(apps, schema_editor):
    for statement in POSTGRESQL if schema_editor.connection.vendor == "postgresql" else SQLITE:
        schema_editor.execute(statement, params=None)


def drop(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"DROP TRIGGER {TABLE}_append_only ON {TABLE}")
        schema_editor.execute("DROP FUNCTION mandate_append_only()")
    else:
        for verb in ("update", "delete"):
            schema_editor.execute(f"DROP TRIGGER {TABLE}_no_{verb}")


class Migration(migrations.Migration):
    dependencies = [("agents", "0001_initial")]
    operations = [migrations.RunPython(create, drop, hints={"store": "default"})]
