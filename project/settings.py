"""Django's settings, derived from :class:`project.config.Config` alone.

Nothing else reads the environment, so a wrong value is reported once, by name, at start.
"""

from __future__ import annotations

import secrets
import warnings
from typing import Any

from project.config import ROOT, load, split_list
from project.databases import database_from_url

CONFIG = load()

BASE_DIR = ROOT
DATA_DIR = CONFIG.data_dir
DEBUG = CONFIG.debug


def _secret_key() -> str:
    """The given key, or one made once and kept beside the databases (0600)."""
    if CONFIG.secret_key:
        return CONFIG.secret_key
    path = DATA_DIR / "secret_key"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(48), encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


SECRET_KEY = _secret_key()
ALLOWED_HOSTS = split_list(CONFIG.allowed_hosts)
CSRF_TRUSTED_ORIGINS = split_list(CONFIG.csrf_trusted_origins)

INSTALLED_APPS = [
    "project.apps.ProjectConfig",
    "chat.apps.ChatConfig",
    "advertisements.apps.AdvertisementsConfig",
    "definitions.apps.DefinitionsConfig",
    "agents.apps.AgentsConfig",
    "project.apps.OperatorAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "django_q",
    "template_partials",
    "lucide",
    "csp",
    "ninja",
]

MIDDLEWARE = [
    "chat.middleware.ChatOrigins",  # outside, so that refusals too say who may read them
    "project.middleware.RequestEdge",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "project.context.navigation",
            ],
            "builtins": ["lucide.templatetags.lucide", "django_htmx.templatetags.django_htmx"],
        },
    }
]

DATABASES = {
    "default": database_from_url(CONFIG.database_url, DATA_DIR / "control.sqlite3"),
    "content": database_from_url(CONFIG.content_database_url, DATA_DIR / "content.sqlite3"),
}
DATABASE_ROUTERS = ["project.databases.StoreRouter"]
CONTENT_MODELS = ["agents.Blob", "chat.SessionEvent", "chat.ThreadText"]

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "agents.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "sign-in"

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = CONFIG.secure_cookies
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}

CSRF_FAILURE_VIEW = "project.errors.csrf_failure"
#: Bytes of a request body that Django reads; the gateways and the chat have their own bounds.
DATA_UPLOAD_MAX_MEMORY_SIZE = 1_048_576

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True

STATIC_URL = "static/"
STATICFILES_DIRS = [ROOT / "project" / "static"]

# django-q2 is a doorbell only: our own rows are the queue. No time-out on purpose: a call keeps
# its slot until it has really ended, and the library's advice about that is not for us.
warnings.filterwarnings("ignore", message="Retry and timeout are misconfigured")
Q_CLUSTER = {
    "name": "mandate",
    "workers": 1,
    "timeout": None,
    "retry": 300_000_000,
    "max_attempts": 1,
    "ack_failures": True,
    "save_limit": -1,
    "scheduler": False,
    "catch_up": False,
    "bulk": 1,
    "orm": "default",
    "recycle": 100_000,
}

KEYRING_PATH = CONFIG.keyring_path or DATA_DIR / "keyring.json"
KEYRING_JSON = CONFIG.keyring
CHAT_ORIGINS = frozenset(split_list(CONFIG.chat_origins))
OUTGOING_ALLOWED = split_list(CONFIG.outgoing_allowed)
PUBLIC_URL = CONFIG.public_address
GATEWAY_URL = CONFIG.gateway_address
RUNTIME_URL = CONFIG.runtime_url
RUNTIME_TOKEN = CONFIG.runtime_token

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "project.logs.TypeOnlyFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s %(message)s",
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": CONFIG.log_level},
    "loggers": {
        # httpx logs full addresses at INFO; addresses of providers are nobody's business.
        "httpx": {"level": "WARNING"},
        "httpx2": {"level": "WARNING"},
        # Its errors quote what tool servers sent.
        "mcp": {"level": "CRITICAL"},
    },
}
