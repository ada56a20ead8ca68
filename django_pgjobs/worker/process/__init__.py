"""The life of a worker process: start, signals, lease, end."""
