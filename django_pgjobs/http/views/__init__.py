"""The handlers of the HTTP API and their routes, by subject."""
