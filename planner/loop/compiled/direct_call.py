"""Calls of a compiled loop without Numba's dispatch, which takes longer than a step when a loop is called for each."""

from collections.abc import Callable
from typing import Any

from planner.loop.compiled.jit import numba, uncompiled


def direct_call(loop: Any, function: Any, signature: Any) -> Callable[[Any], int]:
    """Return a function of the loop's memory that calls the loop with a function of a user.

    Numba finds the loop's machine code, and the function's address, anew at each call of a dispatcher: 70 µs. The
    code itself takes both as they are.

    Parameters
    ----------
    loop : compiled for one signature: memory, function.
    function : compiled; uncompiled loops take any.
    signature : of the function.
    """
    if numba.config.DISABLE_JIT:
        return lambda memory: int(uncompiled(loop)(memory, function))
    compiled, = loop.overloads.values()
    address = function.get_compile_result(signature)
    pointer = address.library.get_pointer_to_function(address.fndesc.llvm_cfunc_wrapper_name)

    class Addressed(numba.types.WrapperAddressProtocol):  # type: ignore[misc]
        """The function by its address; it holds the code, which lives as long."""

        owners = (loop, function)

        def __wrapper_address__(self) -> int:
            return int(pointer)

        def signature(self) -> Any:
            return signature

    addressed = Addressed()
    return lambda memory: int(compiled.entry_point(memory, addressed))
