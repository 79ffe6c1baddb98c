"""The product's addresses, and those that do nothing, behind the same middleware."""

from django.urls import include, path

from benchmarks.empty import EmptyView

urlpatterns = [
    path("empty", EmptyView.as_view()),
    path("", include("config.urls")),
]
