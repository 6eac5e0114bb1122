from django.apps import AppConfig


class DefinitionsConfig(AppConfig):
    name = "definitions"
