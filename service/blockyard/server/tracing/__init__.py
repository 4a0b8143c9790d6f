"""OpenTelemetry traces. Imported only for ``--traces``: the extra ``tracing`` brings what it needs."""
