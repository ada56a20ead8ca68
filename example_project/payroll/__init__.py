"""Paying people: a cheque for each, while the pay of others is still calculated."""
