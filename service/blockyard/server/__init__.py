"""The HTTP server: a thin edge around `blockyard.core`."""
