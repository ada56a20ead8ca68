"""What spans, attributes and instruments are called.

Source: OpenTelemetry's semantic conventions for messaging, whose status is "development": so all
of it is here, and a test compares it with their package.
"""

from __future__ import annotations

SCOPE = "django_pgjobs"
SYSTEM = "pgjobs"
ENQUEUE = "enqueue"
PROCESS = "process"

# Attributes.
MESSAGING_SYSTEM = "messaging.system"
DESTINATION_NAME = "messaging.destination.name"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
MESSAGE_ID = "messaging.message.id"
CONVERSATION_ID = "messaging.message.conversation_id"
BATCH_COUNT = "messaging.batch.message_count"
ERROR_TYPE = "error.type"
# Of our own.
TASK = "pgjobs.task"
ATTEMPT = "pgjobs.attempt"
MAX_ATTEMPTS = "pgjobs.max_attempts"
OUTCOME = "pgjobs.outcome"
WAITED = "pgjobs.waited"

# Instruments.
SENT_MESSAGES = "messaging.client.sent.messages"
OPERATION_DURATION = "messaging.client.operation.duration"
CONSUMED_MESSAGES = "messaging.client.consumed.messages"
PROCESS_DURATION = "messaging.process.duration"
DURATION_BOUNDS = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
)  # fmt: skip

# Sentry's.
SENTRY_PUBLISH = "queue.publish"
SENTRY_PROCESS = "queue.process"
SENTRY_ORIGIN = "auto.queue.django_pgjobs"
RECEIVE_LATENCY = "messaging.message.receive.latency"
RETRY_COUNT = "messaging.message.retry.count"
