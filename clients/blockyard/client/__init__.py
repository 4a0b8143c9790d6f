"""Clients of a blockyard server."""
