"""A mail server that only pretends."""

from __future__ import annotations

import time
from collections.abc import Sequence

from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend

# Mail servers of this domain answer slowly, so that the demo can kill a worker while it
# waits for one. The top-level domain is reserved: nobody has an address there.
SLOW_DOMAIN = "slow.example"
SLOW_SECONDS = 1.0


class PretendMailServer(BaseEmailBackend):
    """Accept every message and deliver none, slowly to addresses at SLOW_DOMAIN."""

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        """Return how many messages were accepted: all of them."""
        for message in email_messages:
            if any(address.endswith(f"@{SLOW_DOMAIN}") for address in message.recipients()):
                time.sleep(SLOW_SECONDS)
        return len(email_messages)
