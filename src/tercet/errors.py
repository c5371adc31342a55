"""What can go wrong, as one tree.

    TercetError
    ├── InputError       a file, a row or a text that a user gave
    │   ├── RowError     one line of a data file: always says file:line
    │   └── TextError    one text of a list: says which
    │       └── TextTypeError    it is no text at all, such as None; a TypeError too
    ├── SettingError     a value that is unknown or does not fit the others
    ├── ModelError       a model that cannot be found, read or trusted
    │   └── NonFiniteError   a model whose output is not a number
    ├── DivergedError    a training whose loss, gradient or weights are not numbers
    └── OutputError      a target that cannot be written

Every message reads `what: where. fix.` and the command line exits with code 2.
"""


class TercetError(Exception):
    """The root of all errors that Tercet raises on purpose."""


class InputError(TercetError):
    """A file or text that was given cannot be used."""


class RowError(InputError):
    """One line of a data file cannot be used; the message says file:line."""


class TextError(InputError):
    """One text of a list cannot be used.

    Args:
        position: Which text, from 0.
        problem: What is wrong with it, and the fix.
    """

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"text {position}: {problem}")
        self.position = position
        self.problem = problem

    def __reduce__(self) -> tuple[type["TextError"], tuple[int, str]]:
        return type(self), (self.position, self.problem)


class TextTypeError(TextError, TypeError):
    """Something in a list of texts is no text: None, a number, bytes."""


class SettingError(TercetError):
    """A setting is unknown, or its value does not fit."""


class ModelError(TercetError):
    """A model cannot be found, read or trusted."""


class NonFiniteError(ModelError):
    """A model produced NaN or infinity; the message names the first layer where it appeared."""


class DivergedError(TercetError):
    """The loss, the gradient or the weights of a training are NaN or infinite; the message names the step."""


class OutputError(TercetError):
    """A target cannot be written."""
