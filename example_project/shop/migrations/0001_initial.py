"""The shop's tables."""

from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Customer",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="customer",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("welcome_job_id", models.BigIntegerField(editable=False, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name="Product",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("sku", models.CharField(max_length=32, unique=True, verbose_name="SKU")),
                ("name", models.CharField(max_length=100)),
                ("unit_amount", models.PositiveIntegerField(help_text="price of one, in cents")),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("reference", models.CharField(max_length=40, unique=True)),
                ("currency", models.CharField(default="EUR", max_length=3)),
                ("total_amount", models.PositiveIntegerField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("placed", "placed, not paid"),
                            ("payment_failed", "payment failed"),
                            ("paid", "paid"),
                            ("partly_refunded", "partly refunded"),
                            ("refunded", "refunded"),
                            ("disputed", "disputed"),
                        ],
                        default="placed",
                        max_length=20,
                    ),
                ),
                ("captured_amount", models.PositiveIntegerField(default=0)),
                ("refunded_amount", models.PositiveIntegerField(default=0)),
                ("revision", models.PositiveIntegerField(default=0)),
                ("placed_at", models.DateTimeField(auto_now_add=True)),
                (
                    "customer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="orders",
                        to="shop.customer",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="PaymentEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("event_id", models.CharField(max_length=64, unique=True)),
                ("type", models.CharField(max_length=40)),
                ("payment_id", models.CharField(max_length=64)),
                ("amount", models.PositiveIntegerField()),
                ("currency", models.CharField(max_length=3)),
                (
                    "card",
                    models.CharField(blank=True, help_text="brand and last digits", max_length=40),
                ),
                ("occurred_at", models.DateTimeField()),
                ("applied_at", models.DateTimeField(auto_now_add=True)),
                ("job_id", models.BigIntegerField(editable=False, null=True)),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="payment_events",
                        to="shop.order",
                    ),
                ),
            ],
            options={
                "ordering": ["occurred_at", "pk"],
            },
        ),
        migrations.CreateModel(
            name="OrderLine",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("quantity", models.PositiveSmallIntegerField(default=1)),
                ("unit_amount", models.PositiveIntegerField()),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="lines",
                        to="shop.order",
                    ),
                ),
                (
                    "product",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="shop.product",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="WelcomeMail",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("recipient", models.EmailField(max_length=254)),
                ("job_id", models.BigIntegerField(editable=False, null=True)),
                ("sent_at", models.DateTimeField(auto_now_add=True)),
                (
                    "customer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="welcome_mails",
                        to="shop.customer",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="DailyReport",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField(unique=True)),
                ("orders", models.PositiveIntegerField()),
                ("amount", models.PositiveBigIntegerField(help_text="in cents")),
                ("written_at", models.DateTimeField(auto_now=True)),
            ],
        ),
    ]
