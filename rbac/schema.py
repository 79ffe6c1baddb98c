"""What the OpenAPI document says about authentication."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call,misc,unused-ignore]
    """`Authorization: Token rt_…`."""

    target_class = "rbac.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        """Describe the header."""
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "`Token rt_…`, from POST /auth/token or `manage.py create_agent`",
        }


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call,misc,unused-ignore]
    """The cookie of the log-in session."""

    target_class = "rbac.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        """Describe the cookie."""
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}
