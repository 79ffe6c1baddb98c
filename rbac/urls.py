"""Addresses under /api/v1/."""

from django.urls import path

from rbac import api

urlpatterns = [
    path("auth/token", api.TokenView.as_view(), name="auth-token"),
    path("me", api.MeView.as_view(), name="me"),
]
