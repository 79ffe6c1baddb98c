"""Addresses of the conversation API, below /api/v1/."""

from django.urls import path

from conversations.api.artifacts import ArtifactsView, ArtifactView
from conversations.api.context import ContextView
from conversations.api.events import EventsView
from conversations.api.folds import FoldsView
from conversations.api.session_checkpoints import CheckpointView
from conversations.api.session_files import ActiveFileView, FilesView, FileView
from conversations.api.sessions import (
    DigestView,
    EndView,
    MessagesView,
    PreviousResultsView,
    SessionView,
    WindowView,
)
from conversations.api.threads import RehydrateView, ThreadsView, ThreadView
from conversations.api.turns import TurnsView, TurnView
from conversations.api.user_sessions import UserDigestView, UserSessionsView

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
    path("sessions/<str:session_id>", SessionView.as_view(), name="session"),
    path("sessions/<str:session_id>/messages", MessagesView.as_view(), name="messages"),
    path("sessions/<str:session_id>/window", WindowView.as_view(), name="window"),
    path(
        "sessions/<str:session_id>/previous-results",
        PreviousResultsView.as_view(),
        name="previous-results",
    ),
    path("sessions/<str:session_id>/checkpoint", CheckpointView.as_view(), name="checkpoint"),
    path("sessions/<str:session_id>/digest", DigestView.as_view(), name="session-digest"),
    path("sessions/<str:session_id>/end", EndView.as_view(), name="end-session"),
    path("sessions/<str:session_id>/files", FilesView.as_view(), name="files"),
    path("sessions/<str:session_id>/files/active", ActiveFileView.as_view(), name="active-file"),
    path("sessions/<str:session_id>/files/<str:file_id>", FileView.as_view(), name="file"),
    path("users/<str:user_id>/sessions", UserSessionsView.as_view(), name="user-sessions"),
    path("users/<str:user_id>/digest", UserDigestView.as_view(), name="user-digest"),
]
