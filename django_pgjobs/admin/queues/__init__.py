"""The pages Queues and Limits."""
