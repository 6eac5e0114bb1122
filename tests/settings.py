"""Settings of the test suite: an own data directory, and PostgreSQL when the suite asks for it.

``TEST_ENGINE=postgres pytest`` runs everything on a private PostgreSQL instead of SQLite.
"""

import base64
import json
import os
import tempfile

from tests import postgres

TEST_ENGINE = os.environ.get("TEST_ENGINE", "sqlite")

os.environ.setdefault("DATA_DIR", tempfile.mkdtemp(prefix="mandate-tests-"))
os.environ.setdefault("SECRET_KEY", "only-for-tests-" + "x" * 40)
os.environ.setdefault("MANDATE_DEMO", "false")
os.environ.setdefault(
    "KEYRING",
    json.dumps({"active": "test", "keys": {"test": base64.b64encode(b"t" * 32).decode()}}),
)
if TEST_ENGINE == "postgres":
    os.environ.setdefault("DATABASE_URL", postgres.url("control"))
    os.environ.setdefault("CONTENT_DATABASE_URL", postgres.url("content"))

from project.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
