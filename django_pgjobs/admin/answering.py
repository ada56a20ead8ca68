"""What views answer to a form: a page of this site to go back to, and a text on top of it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme

from django_pgjobs.permissions import Verb, require


def back(request: HttpRequest, otherwise: str) -> HttpResponseRedirect:
    """Return a redirection to the page that a form names as `next`, if it is one of ours."""
    return HttpResponseRedirect(our_address(request, request.POST.get("next", "")) or otherwise)


def our_address(request: HttpRequest, address: str) -> str:
    """Return *address* if it is one of this site, "" for any other."""
    is_ours = url_has_allowed_host_and_scheme(
        address, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return address if is_ours else ""


def refuse_unless_posted(request: HttpRequest, verb: Verb) -> HttpResponse | None:
    """Raise PermissionDenied, or return the answer to a request that is no POST; else None."""
    require(request, verb)
    return None if request.method == "POST" else HttpResponse(status=405, headers={"Allow": "POST"})


def say(request: HttpRequest, text: str, *, is_good: bool = True) -> None:
    """Show *text* at the top of the next page."""
    messages.add_message(request, messages.SUCCESS if is_good else messages.WARNING, text)
