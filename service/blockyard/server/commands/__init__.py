"""The subcommands of ``blockyard``, one a module. Each is imported only when it is asked for."""
