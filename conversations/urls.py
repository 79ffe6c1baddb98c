"""Addresses of the conversation API, below /api/v1/."""

from django.urls import path

from conversations.api.artifacts import ArtifactsView, ArtifactView
from conversations.api.context import ContextView
from conversations.api.events import EventsView
from conversations.api.folds import FoldsView
from conversations.api.threads import RehydrateView, ThreadsView, ThreadView
from conversations.api.turns import TurnsView, TurnView

urlpatterns = [
    path("threads", ThreadsView.as_view(), name="threads"),
    path("threads/<str:thread_id>", ThreadView.as_view(), name="thread"),
    path("threads/<str:thread_id>/turns", TurnsView.as_view(), name="turns"),
    path("threads/<str:thread_id>/turns/<str:turn_id>", TurnView.as_view(), name="turn"),
    path("threads/<str:thread_id>/artifacts", ArtifactsView.as_view(), name="artifacts"),
    path("threads/<str:thread_id>/artifacts/<str:number>", ArtifactView.as_view(), name="artifact"),
    path("threads/<str:thread_id>/context", ContextView.as_view(), name="context"),
    path("threads/<str:thread_id>/events", EventsView.as_view(), name="events"),
    path("threads/<str:thread_id>/folds", FoldsView.as_view(), name="folds"),
    path("threads/<str:thread_id>/rehydrate", RehydrateView.as_view(), name="rehydrate"),
]
