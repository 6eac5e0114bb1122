"""Settings of the test suite: an own data directory, and PostgreSQL when the suite asks for it."""

import os
import tempfile

os.environ.setdefault("DATA_DIR", tempfile.mkdtemp(prefix="mandate-tests-"))
os.environ.setdefault("SECRET_KEY", "only-for-tests-" + "x" * 40)
os.environ.setdefault("MANDATE_DEMO", "false")

from project.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
