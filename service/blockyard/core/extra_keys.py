"""(placeholder until the hashing work lands)"""
from dataclasses import dataclass
@dataclass(frozen=True, slots=True)
class Extras:
    """x."""
