"""``python -m examples.two_processes``. The processes that this one starts import this module as well."""

if __name__ == "__main__":
    from examples.two_processes.command_line import main

    main()
