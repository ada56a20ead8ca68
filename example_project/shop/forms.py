"""The shop's forms."""

from __future__ import annotations

from django import forms
from django.contrib.auth.models import User

from example_project.shop.models import Product

# What the buttons on an order's page make the payment provider say.
EVENT_TYPES = [
    ("payment.captured", "Pay"),
    ("payment.failed", "Fail to pay"),
    ("refund.created", "Refund"),
    ("dispute.opened", "Dispute"),
    ("dispute.won", "Win the dispute"),
]
TAKEN = "Somebody has signed up with this address already."


class SignUpForm(forms.Form):
    """A name and an address."""

    name = forms.CharField(
        max_length=100, widget=forms.TextInput(attrs={"autocomplete": "name", "autofocus": True})
    )
    # A user name holds 150 characters, and the address is the user name.
    email = forms.EmailField(
        label="E-mail",
        max_length=150,
        widget=forms.EmailInput(attrs={"autocomplete": "email"}),
    )

    def clean_email(self) -> str:
        """Refuse an address that is taken."""
        email: str = self.cleaned_data["email"].lower()
        if User.objects.filter(username=email).exists():
            raise forms.ValidationError(TAKEN)
        return email


class OrderForm(forms.Form):
    """One product, some of it."""

    product = forms.ModelChoiceField(Product.objects.all(), empty_label=None)
    quantity = forms.IntegerField(min_value=1, max_value=20, initial=1)


class ProviderForm(forms.Form):
    """What the payment provider shall say about an order."""

    event_type = forms.ChoiceField(choices=EVENT_TYPES)
