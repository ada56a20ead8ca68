"""What the web servers of tests serve."""

from __future__ import annotations

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

from django_pgjobs.http.asgi import with_api

wsgi = get_wsgi_application()
asgi = with_api(get_asgi_application())
