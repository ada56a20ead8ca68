"""An app label with migrations as later releases may have them, for the tests of the operations."""
