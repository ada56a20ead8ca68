"""Running claimed jobs in threads and in the event loop."""
