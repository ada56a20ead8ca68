"""From schedules to jobs: what is due, each occurrence once, and what people do about it."""
