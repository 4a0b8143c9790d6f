"""``python -m blockyard.server``: the ``blockyard`` command where no script is installed."""

from blockyard.server.command_line import main

main()
