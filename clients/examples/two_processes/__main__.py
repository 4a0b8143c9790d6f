"""``python -m examples.two_processes``. The processes that this one starts import this module as well."""

import sys

if __name__ == "__main__":
    try:
        from examples.two_processes.command_line import main
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "blockyard", "examples"):
            raise
        sys.exit(
            f"two_processes: the package {package!r} is not installed: pip install 'blockyard[worker,server]'"
        )
    main()
