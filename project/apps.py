from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig


class ProjectConfig(AppConfig):
    name = "project"
    verbose_name = "Mandate"


class OperatorAdminConfig(AdminConfig):
    """Django's admin with our site in the place of its own."""

    default_site = "project.admin_site.OperatorSite"
