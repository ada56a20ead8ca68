"""The page API tokens: the list, one token, and making, rotating and revoking them.

A secret is on the answer to the form that made it, and nowhere else.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_variables

from django_pgjobs.admin.answering import refuse_unless_posted, say
from django_pgjobs.admin.audit import record
from django_pgjobs.admin.breadcrumbs import step
from django_pgjobs.admin.pages import ListPageAdmin, page, require_a_look, within_budget
from django_pgjobs.admin.refusals import in_words
from django_pgjobs.admin.tokens.forms import RotationForm, TokenForm
from django_pgjobs.http.tokens import create_token, revoke_token, rotate_token, state_of
from django_pgjobs.models import Token
from django_pgjobs.permissions import Verb, may, require
from django_pgjobs.queries.database import job_database
from django_pgjobs.values.bounds import MAX_BIGINT

MAX_TOKENS = 500
# In the session: the last forms that made a token.
SENT = "pgjobs.tokens"
MAX_SENT = 20
# State -> icon and word.
STATES = {
    "valid": ("✓", gettext_lazy("Valid")),
    "expired": ("◷", gettext_lazy("Expired")),
    "revoked": ("✕", gettext_lazy("Revoked")),
}


def _was_sent(request: HttpRequest, sheet: str) -> bool:
    """Did this form make a token before? A reload of the page with the secret sends it again."""
    return sheet in request.session.get(SENT, ())


def _note_sent(request: HttpRequest, sheet: str) -> None:
    if sheet:
        request.session[SENT] = [*request.session.get(SENT, ()), sheet][-MAX_SENT:]


class ShownToken(NamedTuple):
    """A token as a template shows it; *state* is a key of STATES."""

    row: Token
    url: str
    state: str
    icon: str
    label: Any

    @property
    def is_valid(self) -> bool:
        """Can it be used?"""
        return self.state == "valid"


class TokenAdmin(ListPageAdmin):
    """Who may use the HTTP API, and for what."""

    nav_key: ClassVar[str] = "tokens"
    actions = None

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        return [
            path("<int:token_id>/revoke/", wrap(self.revoke_view), name="pgjobs_token_revoke"),
            path("<int:token_id>/rotate/", wrap(self.rotate_view), name="pgjobs_token_rotate"),
            *super().get_urls(),
        ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Verb.CONTROL_TOKENS)

    def draw_list(self, request: HttpRequest) -> HttpResponse:
        """Return the list of tokens, those that can be used first."""
        now = timezone.now()
        rows = list(Token.objects.order_by("-id")[:MAX_TOKENS])
        tokens = [self._shown(row, now) for row in rows]
        context = {
            "title": _("API tokens"),
            "tokens": sorted(tokens, key=lambda token: not token.is_valid),
            "add_url": self.url("pgjobs_token_add"),
            "may_control": may(request.user, Verb.CONTROL_TOKENS),
            "is_cut": len(rows) == MAX_TOKENS,
            "max_rows": MAX_TOKENS,
        }
        return self.render_page(request, "tokens.html", context)

    @page
    @sensitive_variables("secret")
    def add_view(
        self,
        request: HttpRequest,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The form of a new token; a POST makes it, and shows its secret."""
        require(request, Verb.CONTROL_TOKENS)
        form = TokenForm(request.POST if request.method == "POST" else None)
        if form.is_bound and form.is_valid():
            if _was_sent(request, form.cleaned_data["sheet"]):
                said = _("This form was sent before: its token is made, and its secret was shown.")
                say(request, said, is_good=False)
                return HttpResponseRedirect(self.url("pgjobs_token_changelist"))
            by = request.user.get_username()
            try:
                token, secret = create_token(form.cleaned_data["name"], form.scope, by=by)
            except ValueError as error:
                form.add_error(None, in_words(error))
            else:
                _note_sent(request, form.cleaned_data["sheet"])
                record(request.user, "create_token", obj=token, site=self.admin_site)
                return self._draw_secret(request, token, secret)
        context = {"title": _("New token"), "form": form, "steps": self._steps()}
        return self.render_page(request, "token_new.html", context)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """One token, with what can be done about it."""
        require_a_look(request)
        return within_budget(self, request, lambda: self._draw_token(request, object_id))

    def revoke_view(self, request: HttpRequest, token_id: int) -> HttpResponse:
        """End a token."""
        refused = refuse_unless_posted(request, Verb.CONTROL_TOKENS)
        if refused:
            return refused
        token = self._find(token_id)
        if token is not None and revoke_token(token.pk):
            record(request.user, "revoke_token", obj=token, site=self.admin_site)
            said = _("Revoked: %(name)s. Web processes may take it for five seconds more.")
            say(request, said % {"name": token})
        else:
            say(request, _("This token cannot be used any more."), is_good=False)
        return HttpResponseRedirect(self.url("pgjobs_token_changelist"))

    @sensitive_variables("secret")
    def rotate_view(self, request: HttpRequest, token_id: int) -> HttpResponse:
        """Make a token like another one, show its secret, and let that one end."""
        refused = refuse_unless_posted(request, Verb.CONTROL_TOKENS)
        if refused:
            return refused
        token, form = self._find(token_id), RotationForm(request.POST)
        by = request.user.get_username()
        try:
            if token is None or not form.is_valid():
                raise LookupError
            successor, secret = rotate_token(token.pk, keep=form.kept, by=by)
        except (LookupError, ValueError):
            said = _("This token cannot be used any more.")
            if token is not None and token.successor_id is not None:
                said = _("This token was rotated before: rotate its successor.")
            say(request, said, is_good=False)
            return HttpResponseRedirect(self.url("pgjobs_token_changelist"))
        site = self.admin_site
        record(request.user, "rotate_token", obj=token, target=f"#{successor.pk}", site=site)
        return self._draw_secret(request, successor, secret)

    def _draw_token(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        if row is None:
            say(request, _("There is no such token."), is_good=False)
            return HttpResponseRedirect(self.url("pgjobs_token_changelist"))
        successor = row.successor_id
        context = {
            "successor_url": successor and self.url("pgjobs_token_change", successor),
            "title": _("Token %(name)s") % {"name": row},
            "steps": self._steps(),
            "token": self._shown(row, timezone.now()),
            "form": RotationForm(),
            "revoke_url": self.url("pgjobs_token_revoke", row.pk),
            "rotate_url": self.url("pgjobs_token_rotate", row.pk),
            "history_url": self.url("pgjobs_token_history", row.pk),
            "may_control": may(request.user, Verb.CONTROL_TOKENS),
        }
        return self.render_page(request, "token.html", context)

    @sensitive_variables("secret", "context")
    def _draw_secret(self, request: HttpRequest, token: Token, secret: str) -> HttpResponse:
        context = {
            "title": _("The secret of %(name)s") % {"name": token.name},
            "steps": self._steps(),
            "token": self._shown(token, timezone.now()),
            "secret": secret,
            "list_url": self.url("pgjobs_token_changelist"),
        }
        return self.render_page(request, "token_secret.html", context)

    def _find(self, token_id: int) -> Token | None:
        rows = Token.objects.using(job_database())
        return rows.filter(pk=token_id).first() if token_id <= MAX_BIGINT else None

    def _steps(self) -> list[dict[str, str]]:
        return [step(self, _("API tokens"), "pgjobs_token_changelist")]

    def _shown(self, row: Token, now: datetime) -> ShownToken:
        state = state_of(row, now)
        icon, label = STATES[state]
        return ShownToken(row, self.url("pgjobs_token_change", row.pk), state, icon, label)
