"""Log in for a token, log out, and who am I."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, cast

from django.contrib.auth.models import update_last_login
from drf_spectacular.utils import OpenApiResponse, extend_schema
from knox.settings import knox_settings
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from rest_framework import status
from rest_framework.permissions import AllowAny, BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from config.errors import validate
from rbac import names
from rbac.authentication import TokenAuthentication, plain_request
from rbac.backends import TenantBackend
from rbac.exceptions import InvalidCredentials
from rbac.models import AuthToken, User
from rbac.principal import Principal

Tenant = Annotated[str, AfterValidator(names.tenant)]
UserId = Annotated[str, AfterValidator(names.user_id)]


class Credentials(BaseModel):
    """Who wants a token."""

    model_config = ConfigDict(extra="forbid")

    tenant: Tenant = names.DEFAULT_TENANT
    user_id: UserId
    password: str = Field(min_length=1, max_length=4096)


class TokenOut(BaseModel):
    """The token, shown this once, and until when it can be used."""

    token: str
    expires_at: datetime | None


class Me(BaseModel):
    """The principal."""

    tenant: str
    user_id: str
    role: str


class TokenView(APIView):
    """Tokens of people; agents get theirs from `manage.py create_agent`."""

    authentication_classes = [TokenAuthentication]

    def get_permissions(self) -> list[BasePermission]:
        """Let anybody log in."""
        return [AllowAny() if self.request.method == "POST" else IsAuthenticated()]

    def perform_authentication(self, request: Request) -> None:
        """Ask nobody who logs in for the token that they come to get."""
        if request.method != "POST":
            super().perform_authentication(request)

    @extend_schema(
        request=Credentials,
        responses={
            201: TokenOut,
            401: OpenApiResponse(description="`invalid_credentials`"),
            429: OpenApiResponse(description="`too_many_attempts`; see Retry-After"),
        },
        auth=[],
        summary="Log in for a token",
    )
    def post(self, request: Request) -> Response:
        """Give a token for tenant, user id and password."""
        user = log_in(request, validate(Credentials, request.data))
        row, token = AuthToken.objects.issue(user, name="log-in", ttl=knox_settings.TOKEN_TTL)
        answer = TokenOut(token=token, expires_at=row.expiry).model_dump()
        return Response(answer, status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})

    @extend_schema(request=None, responses={204: None}, summary="Log out: revoke this token")
    def delete(self, request: Request) -> Response:
        """Revoke the token that this call is made with."""
        AuthToken.objects.filter(digest=request.auth).delete()
        return Response(status=status.HTTP_204_NO_CONTENT)


class MeView(APIView):
    """Who the caller is."""

    @extend_schema(responses=Me, summary="Who am I")
    def get(self, request: Request) -> Response:
        """Answer tenant, user id and role of the caller."""
        return Response(me(cast(Principal, request.user)))


def me(principal: Principal) -> dict[str, Any]:
    """Return what a caller may know of itself."""
    return Me(tenant=principal.tenant, user_id=principal.user_id, role=principal.role).model_dump()


def log_in(request: Request, who: Credentials) -> User:
    """Return the person whose credentials these are.

    Raises `TooManyAttempts`, and `InvalidCredentials` for every other reason.
    """
    # Not by Django's `authenticate`, which would hide the one behind the other.
    user = TenantBackend().authenticate(
        plain_request(request), tenant=who.tenant, user_id=who.user_id, password=who.password
    )
    if user is None:
        raise InvalidCredentials
    update_last_login(User, user)
    return user
