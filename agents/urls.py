"""Addresses of the pages for signing in and out."""

from django.urls import path

from agents import pages

urlpatterns = [
    path("sign-in/", pages.SignIn.as_view(), name="sign-in"),
    path("sign-out/", pages.sign_out, name="sign-out"),
]
