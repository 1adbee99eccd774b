"""The ranges that all operators' fitted constants share, by their names."""

from planner.errors import UsageError


class KernelConstants:
    """A dataclass of an operator's constants: fractions in (0, 1], sharpness at least 1, the rest not negative.

    Raises
    ------
    UsageError : one is out of its range; it says which.
    """

    __slots__: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if name.endswith("_frac") and not 0 < value <= 1:
                raise UsageError(f"{name} = {value}; a fraction of a peak is in (0, 1]; check the hardware's numbers")
            if name == "sharpness" and not value >= 1:
                raise UsageError(f"sharpness = {value}; must be >= 1")
            if not value >= 0:
                raise UsageError(f"{name} = {value}; must be >= 0")
