"""From schedules to jobs: what is due, each occurrence once, and changes by people."""
