"""Every address of the product that Django answers. The data plane lies beside it in asgi."""

from django.contrib import admin
from django.urls import include, path

from project.api import api

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("agents.urls")),
    path("", include("definitions.urls")),
    path("", include("chat.urls")),
    # Last: the API's routes carry their whole prefixes, /api/v1 and /apps/v1.
    path("", api.urls),
]
