"""What a state or a share is drawn with in a terminal."""

from dataclasses import dataclass

from rich.console import ConsoleOptions


@dataclass(frozen=True, slots=True)
class Ink:
    """What a part is drawn with: a sign, one for terminals without Unicode, and a colour.

    Signs and colours both tell parts apart: not everyone sees either.
    """

    sign: str
    ascii_sign: str
    colour: str

    def sign_on(self, options: ConsoleOptions) -> str:
        """The sign that a terminal of these ``options`` can show."""
        return self.ascii_sign if options.ascii_only else self.sign
