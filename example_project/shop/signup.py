"""Signing up: the user, the customer and the job of the welcome mail in one transaction.

The task stands beside the code that enqueues it, so that whoever changes its arguments
sees both ends.
"""

from __future__ import annotations

from django.contrib.auth.models import User
from django.core.mail import EmailMessage
from django.db import transaction

from django_pgjobs import current_job, task
from example_project.shop.models import Customer, WelcomeMail

WELCOME = """Hello {name},

your account is ready. Reply to this mail if you need anything.

The shop
"""


@task(
    queue_name="mail",
    max_attempts=10,
    timeout=60,
    # A customer deleted in the meantime needs no welcome: trying again will not help.
    discard_on=(Customer.DoesNotExist,),
    atomic=True,
)
def send_welcome_mail(customer_id: int) -> None:
    """Send the welcome mail and record it.

    The row is written exactly once: with `atomic=True` it commits together with the job's
    completion, or not at all. The mail itself leaves the database's reach: a worker that
    dies between the mail server's yes and the commit leaves no trace of having sent it,
    and the next attempt sends it again. Nobody can promise better than at least once to
    the outside, so the reversible part comes first and the mail last, which keeps that
    gap as narrow as it can be.
    """
    customer = Customer.objects.select_related("user").get(pk=customer_id)
    WelcomeMail.objects.create(
        customer=customer,
        recipient=customer.user.email,
        job_id=current_job().id,
    )
    EmailMessage(
        subject="Welcome to the shop",
        body=WELCOME.format(name=customer.user.first_name),
        to=[customer.user.email],
    ).send()


def sign_up(*, name: str, email: str) -> Customer:
    """Create a user and a customer, and let the welcome mail follow.

    Everything is in one transaction, the job too: if this returns and the caller's
    transaction commits, the mail will be sent; if anything fails, there is neither user
    nor job. No `on_commit`, no second system to keep in step.
    Raise IntegrityError if the address is taken.
    """
    with transaction.atomic():
        # No password: people sign in through a link sent to them.
        user = User.objects.create_user(username=email, email=email, first_name=name)
        job = send_welcome_mail.enqueue(customer_id=user.pk)
        return Customer.objects.create(user=user, welcome_job_id=int(job.id))
