"""People, agents and tokens in /admin.

An administrator sees their own tenant; a superuser all of them. Nobody but a superuser makes,
changes or removes a superuser.
"""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import BaseUserCreationForm, SetUnusablePasswordMixin
from django.db.models import QuerySet
from django.http import HttpRequest

from rbac.models import AuthToken, Role, User

PEOPLE_ROLES = [(role.value, role.label) for role in Role if role != Role.AGENT]


def is_superuser(request: HttpRequest) -> bool:
    """Whether the one who looks may see every tenant."""
    return bool(getattr(request.user, "is_superuser", False))


class OwnTenantAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows of one's own tenant, for administrators; of all tenants, for superusers.

    `tenant_path` leads from a row to its tenant (`"user__tenant"`).
    """

    tenant_path = "tenant"
    show_full_result_count = False
    list_per_page = 50

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows that may be seen."""
        rows = super().get_queryset(request)
        if is_superuser(request):
            return rows
        return rows.filter(**{self.tenant_path: getattr(request.user, "tenant", None)})

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Let every administrator in."""
        return _is_admin(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let administrators read; which rows, `get_queryset` says."""
        return _is_admin(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Let administrators add."""
        return _is_admin(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let administrators change what they may touch."""
        return _is_admin(request) and self.may_touch(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let administrators remove what they may touch."""
        return _is_admin(request) and self.may_touch(request, obj)

    def may_touch(self, request: HttpRequest, obj: Any) -> bool:
        """Say whether this row may be changed or removed by who asks."""
        return True


def _is_admin(request: HttpRequest) -> bool:
    user = request.user
    return user.is_active and bool(getattr(user, "is_staff", False))


class AddPersonForm(SetUnusablePasswordMixin, BaseUserCreationForm):  # type: ignore[type-arg]
    """Somebody new, with a password or without one."""

    usable_password = SetUnusablePasswordMixin.create_usable_password_field()
    role = forms.ChoiceField(choices=PEOPLE_ROLES, initial=Role.USER)

    class Meta:
        model = User
        fields = ("tenant", "user_id", "role")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("password1", "password2"):
            self.fields[name].required = False


@admin.register(User)
class PersonAdmin(OwnTenantAdmin, DjangoUserAdmin):  # type: ignore[type-arg]
    """People and agents; agents are made by `manage.py create_agent`."""

    add_form = AddPersonForm
    list_display = ("username", "tenant", "user_id", "role", "is_active", "last_login")
    list_filter = ("role", "is_active", "is_superuser", "tenant")
    search_fields = ("user_id", "tenant")
    search_help_text = "Part of a user id or tenant"
    ordering = ("tenant", "user_id")
    filter_horizontal = ()
    add_fieldsets = (
        (None, {"fields": ("tenant", "user_id", "role", "usable_password")}),
        ("Password", {"fields": ("password1", "password2")}),
    )
    fieldsets = (
        (None, {"fields": ("tenant", "user_id", "id", "password")}),
        ("Rights", {"fields": ("role", "is_active", "is_superuser")}),
        ("Times", {"fields": ("created_at", "last_login")}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> list[str]:
        """Fix who somebody is; whether they are an agent; and who is a superuser."""
        if obj is None:
            return []
        fixed = ["tenant", "user_id", "id", "created_at", "last_login"]
        if obj.is_agent:
            fixed.append("role")
        if obj.is_agent or not is_superuser(request):
            fixed.append("is_superuser")
        return fixed

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Offer the roles of people, and an administrator's own tenant only."""
        form = super().get_form(request, obj, change=change, **kwargs)
        fields: dict[str, Any] = form.base_fields
        if "role" in fields:
            fields["role"].choices = PEOPLE_ROLES
        if "tenant" in fields and not is_superuser(request):
            own = cast(User, request.user).tenant
            fields["tenant"] = forms.ChoiceField(choices=[(own, own)], initial=own)
        return form

    def may_touch(self, request: HttpRequest, obj: Any) -> bool:
        """Keep superusers out of the reach of who is none."""
        return is_superuser(request) or obj is None or not obj.is_superuser

    def get_list_filter(self, request: HttpRequest) -> Any:
        """Leave out what would list other tenants."""
        return [name for name in self.list_filter if name != "tenant" or is_superuser(request)]


@admin.register(AuthToken)
class AuthTokenAdmin(OwnTenantAdmin):
    """Tokens by their first characters: to see whose they are, and to revoke them by deleting."""

    tenant_path = "user__tenant"
    list_display = ("handle", "user", "name", "created", "expiry")
    list_filter = ("user__role",)
    list_select_related = ("user",)
    search_fields = ("user__user_id", "name", "token_key__startswith")
    search_help_text = "Part of a user id or name, or how the token begins"
    ordering = ("-created",)
    fields = ("handle", "user", "name", "created", "expiry")
    raw_id_fields = ("user",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Refuse: a token made here would have to be shown here."""
        return False

    def has_change_permission(
        self,
        request: HttpRequest,
        obj: Any = None,
    ) -> bool:
        """Refuse: there is nothing in a token to edit."""
        return False

    def may_touch(self, request: HttpRequest, obj: Any) -> bool:
        """Keep the tokens of superusers out of the reach of who is none."""
        return is_superuser(request) or obj is None or not obj.user.is_superuser
