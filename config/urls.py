"""Every address of the site: pages, health, metrics, the API and its documentation."""

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView
from rest_framework.renderers import JSONOpenAPIRenderer

from config import health, pages

urlpatterns = [
    path("", pages.home, name="home"),
    path("admin/", admin.site.urls),
    path("health/live", health.live, name="health-live"),
    path("health/ready", health.ready, name="health-ready"),
    path("health/", health.people, name="health"),
    path("metrics", health.metrics, name="metrics"),
    path(
        "api/schema/",
        SpectacularAPIView.as_view(renderer_classes=[JSONOpenAPIRenderer]),
        name="schema",
    ),
    path("api/docs/", pages.api_docs, name="api-docs"),
    path("api/v1/", include("rbac.urls")),
    path("api/v1/", include("conversations.urls")),
]

handler400 = "config.errors.bad_request"
handler403 = "config.errors.permission_denied"
handler404 = "config.errors.not_found"
handler500 = "config.errors.server_error"
