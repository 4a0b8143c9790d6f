"""Whether the core runs compiled. This module is compiled along with those that have something to gain."""


def is_compiled() -> bool:
    """Whether this is an extension module: then so are the others that ``service/compile_core.py`` names."""
    return not __file__.endswith(".py")
