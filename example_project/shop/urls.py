"""The shop's addresses."""

from __future__ import annotations

from django.urls import path

from example_project.shop import views

app_name = "shop"
urlpatterns = [
    path("", views.home, name="home"),
    path("signup/", views.sign_up_form, name="signup"),
    path("customers/<int:pk>/", views.customer_page, name="customer"),
    path("orders/<str:reference>/", views.order_page, name="order"),
    path("orders/<str:reference>/provider/", views.play_provider, name="provider"),
    path("jobs/<int:pk>/", views.job_page, name="job"),
    path("webhooks/payments/", views.payment_webhook, name="payment-webhook"),
]
