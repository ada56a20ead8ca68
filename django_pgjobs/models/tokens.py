"""The tokens of the HTTP API: who may use it, and for what."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_pgjobs.models.fields import InstantField, TextArrayField


class Token(models.Model):
    """What a program shows to use the HTTP API; only a digest of its secret is kept."""

    id = models.BigAutoField(primary_key=True)
    created_at = InstantField(_("created at"), db_default=Now(), editable=False)
    expires_at = InstantField(_("expires at"), null=True, blank=True)
    revoked_at = InstantField(_("revoked at"), null=True, editable=False)
    last_used_at = InstantField(
        _("last used at"), null=True, editable=False, help_text=_("Give or take a minute.")
    )
    successor_id = models.BigIntegerField(
        _("successor"),
        null=True,
        editable=False,
        help_text=_("The token that a rotation has made of it."),
    )
    per_second = models.FloatField(
        _("requests per second"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0.001), MaxValueValidator(1_000_000)],
        help_text=_("For each web process. Empty: any number."),
    )
    name = models.TextField(_("name"))
    prefix = models.TextField(
        _("begins with"), editable=False, help_text=_("The beginning of the secret.")
    )
    digest = models.TextField(_("digest"), unique=True, editable=False)
    verbs = TextArrayField(_("verbs"), help_text=_("work, enqueue, read, manage"))
    queues = TextArrayField(_("queues"), null=True, blank=True, help_text=_("Empty: all."))
    tasks = TextArrayField(_("tasks"), null=True, blank=True, help_text=_("Empty: all."))
    created_by = models.TextField(_("created by"), default="", editable=False)

    class Meta:
        db_table = "pgjobs_token"
        verbose_name = _("API token")
        verbose_name_plural = _("API tokens")
        default_permissions = ("view",)
        permissions = (("control_token", "Can make, rotate and revoke tokens"),)
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @staticmethod
    def that_is_valid() -> models.Q:
        """Return the condition of a token that is good now, as the term `is_valid` has it."""
        in_time = models.Q(expires_at=None) | models.Q(expires_at__gt=Now())
        return models.Q(revoked_at=None) & in_time
