"""The page API tokens: who may use the HTTP API."""
