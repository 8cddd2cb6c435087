"""A disk cache of numba-compiled functions, so that a second process starts without compiling.

Machine code of a function contains the functions that it calls, from other files and folders too. A cache entry is valid as
long as no source below the package has changed, nor one beside the function where that is outside the package. The cache is the
first of these folders that can be written: `NUMBA_CACHE_DIR`, or else `__pycache__` beside the sources, or the user's cache.
Where none can be written, existing entries are read, and all else is compiled in each process. Of processes that start
together, one compiles a function and the others wait for it. The module also has bit-set operations for compiled loops, and
tables that their parts are given by a pointer.
"""

import contextlib
import hashlib
import inspect
import os
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from filelock import FileLock, Timeout
from numba import njit, types
from numba.core import caching, cgutils, compiler, compiler_machinery, config, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, overload, register_model

from dse.evaluators.machine import compile_counter as compiling

LOCK_TIMEOUT_S = 120.0
"""Time that a process waits for another one to compile a function, before it compiles the function itself. [s]"""

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The top folder of the package: compiled functions call each other across the folders below."""


def cached_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator that compiles a function as `numba.njit` does, and caches the machine code on disk."""

    def compiled(function: Callable[..., Any]) -> Any:
        made = _once(njit(**options)(function))
        made._cache = _Cache(function)
        return made

    return compiled


def needs_compiling(made: Any) -> bool:
    """Whether a function with a cache has to be compiled, and its code can be kept."""
    cache: _Cache = made._cache
    return cache.empty and _writable(cache.cache_path)


def _once(made: Any) -> Any:
    """A compiled function that its callers give a constant as any other number: else numba compiles it for each constant."""
    make_template = made.get_call_template

    def template(args: Any, kws: Any) -> Any:
        plain: Callable[[Any], Any] = types.unliteral
        return make_template([plain(argument) for argument in args], {name: plain(argument) for name, argument in kws.items()})

    made.get_call_template = template
    return made


class _Unfinished(JITCodeLibrary):
    """Code that is linked into that of its callers: optimising and translating it by itself as well would be in vain."""

    def _optimize_final_module(self) -> None:
        """Does nothing: callers do."""

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """There is no machine code, which numba says by 0."""
        return 0

    @property
    def codegen(self) -> Any:
        """What numba would tell where Python objects are, of which there are none."""
        return self

    def set_env(self, name: str, env: object) -> None:
        """Does nothing: without machine code, nothing reads it."""


class _Plain(compiler.Compiler):
    """The compiler of parts, in which are no closures and no expressions of arrays: nobody looks for these."""

    def define_pipelines(self) -> list[Any]:
        """As numba's, without passes that find nothing in such functions."""
        usual = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        passes = compiler_machinery.PassManager("plain")  # type: ignore[no-untyped-call]
        passes.passes.extend(pipeline for pipeline in usual.passes if pipeline[0] not in _VAIN)
        passes.finalize()  # type: ignore[no-untyped-call]
        return [passes]


_VAIN = (untyped_passes.InlineClosureLikes, untyped_passes.InlineInlinables, typed_passes.NopythonRewrites)


class _Inside(_Plain):
    """The compiler of a function that is inlined wherever it is called."""

    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        made = library or _Unfinished(target.codegen(), "inlined")  # type: ignore[no-untyped-call]
        super().__init__(typing, target, made, *rest)  # type: ignore[no-untyped-call]


class _Called(_Unfinished):
    """Code that is linked into that of its callers and is called there."""

    def add_ir_module(self, module: Any) -> None:
        """Adds code that LLVM must not copy into callers."""
        for function in module.functions:
            if not function.is_declaration and "alwaysinline" not in function.attributes:  # what numba itself defines
                function.attributes.add("noinline")
        super().add_ir_module(module)  # type: ignore[no-untyped-call]


class _Apart(_Plain):
    """The compiler of a function that is called by compiled functions alone, and is once in the code of each."""

    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        made = library or _Called(target.codegen(), "apart")  # type: ignore[no-untyped-call]
        super().__init__(typing, target, made, *rest)  # type: ignore[no-untyped-call]


class _Large(JITCodeLibrary):
    """Code of many functions in one, which is not made faster by what LLVM's last level does: copies of loops for each case."""

    def _optimize_final_module(self) -> None:
        usual = config.OPT  # type: ignore[attr-defined]
        config.OPT = type(usual)(min(usual, 2))  # type: ignore[attr-defined]
        try:
            super()._optimize_final_module()  # type: ignore[no-untyped-call]
        finally:
            config.OPT = usual  # type: ignore[attr-defined]


class _Whole(_Plain):
    """The compiler of a function that many others are inlined into."""

    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        made = library or _Large(target.codegen(), "whole")  # type: ignore[no-untyped-call]
        made.enable_object_caching()
        super().__init__(typing, target, made, *rest)  # type: ignore[no-untyped-call]


_plain: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
_inside: dict[str, Any] = {**_plain, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def inlined_function(function: Callable[..., Any]) -> Any:
    """Decorator of a function that is inlined into the compiled functions that call it."""
    return _once(njit(forceinline=True, pipeline_class=_Inside, **_inside)(function))


def compiled_part(function: Callable[..., Any]) -> Any:
    """Decorator of a function that only compiled functions call, as a part of each of them."""
    return _once(njit(pipeline_class=_Inside, **_inside)(function))


def called_part(function: Callable[..., Any]) -> Any:
    """Decorator of a compiled part that is never inlined.

    It suits large parts that run seldom, or that are called from many places.
    """
    return _once(njit(pipeline_class=_Apart, forceinline=False, **_inside)(function))


def fast_maximum(function: Callable[..., Any]) -> Any:
    """Decorator of a compiled part whose maxima are vectorised.

    Their values must be no NaN and no signed zeros.
    """
    return _once(njit(pipeline_class=_Inside, fastmath={"nnan", "nsz"}, **_inside)(function))


compiled_loop = cached_njit(**_plain)
"""Decorator of a function that Python calls."""

compiled_with_arrays = cached_njit(error_model="numpy")
"""Decorator of one that also makes arrays."""

compiled_without_gil = cached_njit(**_plain, nogil=True)
"""Decorator of one that Python calls while its other threads go on; compiled functions call it too."""

compiled_whole = cached_njit(**_plain, nogil=True, no_cfunc_wrapper=True, pipeline_class=_Whole)
"""Decorator of such a function that Python alone calls, and that consists of many parts."""

compiled_inlined = cached_njit(**_plain, nogil=True, forceinline=True)
"""Decorator of a small one of these: it is inlined into the compiled functions that call it. What is large and called from many
places is not, as machine code would grow with the product of the places."""


def compiled_replacement(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Decorator of the function that compiled functions run in place of another one.

    Both take the same arguments; see `machine.compiled_math`.
    """

    def replaces(other: Callable[..., Any]) -> Any:
        other.__annotations__.clear()  # both are compared, names and annotations

        def template(*given: Any) -> Any:
            return other

        template.__signature__ = inspect.signature(other)  # type: ignore[attr-defined]
        overload(function, jit_options=cast(Any, _plain))(template)
        return other

    return replaces


class _Held(types.Type):
    """A named tuple that is read where it lies; its name is short, as names of functions are made of those of types.

    Passed as such, a named tuple of two dozen arrays is seven numbers for each: nearly all that numba and LLVM would have to do
    for a small function. Where the parts are inlined, LLVM has each array at hand in the end, as if it had been passed.
    """

    def __init__(self, held_value: Any) -> None:
        self.of = held_value
        super().__init__(f"held_{hashlib.sha256(held_value.name.encode()).hexdigest()[:16]}")


@register_model(_Held)
class _Pointer(models.PrimitiveModel):
    def __init__(self, models_of: Any, held: _Held) -> None:
        pointer = models_of.lookup(held.of).get_value_type().as_pointer()
        super().__init__(models_of, held, pointer)  # type: ignore[no-untyped-call]


def _place(typing: Any, content: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return cgutils.alloca_once_value(builder, given[0])  # type: ignore[no-untyped-call]

    return _Held(content)(content), build


held: Any = intrinsic(_place)
"""A named tuple of arrays and numbers, which the function that asks keeps until it returns; fields are read, never set."""


@infer_getattr
class _Fields(AttributeTemplate):
    key = _Held

    def generic_resolve(self, typ: Any, attr: str) -> Any:  # type: ignore[override]
        return self.context.resolve_getattr(typ.of, attr)


@lower_getattr_generic(_Held)  # type: ignore[no-untyped-call, untyped-decorator]
def _field(context: Any, builder: Any, typ: Any, value: Any, attr: str) -> Any:
    place = cgutils.gep_inbounds(builder, value, 0, typ.of.fields.index(attr))  # type: ignore[no-untyped-call]
    return builder.load(place)


index: Any = np.uint64
"""Type of an index that is not negative, so that compiled code does not test for wrap-around."""


def _lowest(_: Any, bits: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.cttz(given[0], cgutils.true_bit)

    return types.int64(types.int64), build


lowest: Any = intrinsic(_lowest)
"""The lowest member of a bit set that is not empty: one instruction, count trailing zeros."""


@inlined_function
def next_set_bit(bits: Any, place: Any) -> Any:
    """First member at or after a place, cyclically, of a non-empty bit set of numbers below 32."""
    return lowest(bits >> place << place | bits << 32) & 31


def _stamp(folder: str) -> str:
    """Hash of the sources that a function in a folder may call: those of the package, and of the folder where it is outside."""
    if Path(folder).is_relative_to(PACKAGE):
        return _contents(PACKAGE, True)
    return _contents(PACKAGE, True) + _contents(folder, False)


@lru_cache
def _contents(folder: str, below: bool) -> str:
    """SHA-256 of the names and contents of the sources in a folder, or also of those in the folders below it."""
    digest = hashlib.sha256()
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if below and name != "__pycache__")
        for name in sorted(name for name in names if name.endswith(".py")):
            path = os.path.join(place, name)
            source = Path(path).read_bytes()
            digest.update(f"{os.path.relpath(path, folder)} {len(source)}\n".encode() + source)
    return digest.hexdigest()


class _Place:
    """The cache folder and the source stamp of a function; a locator in numba's terms."""

    def __init__(self, function: Callable[..., Any], source: str) -> None:
        self._py_file = source  # numba names it where code cannot be cached
        self._line = function.__code__.co_firstlineno
        self._folder = os.path.dirname(os.path.abspath(source))
        own = f"{os.path.basename(self._folder)}_{hashlib.sha256(self._folder.encode()).hexdigest()[:16]}"
        beside = os.path.join(self._folder, "__pycache__")
        user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        given = os.environ.get("NUMBA_CACHE_DIR", "")  # numba itself would also read a file of the current folder
        places = [os.path.join(given, own)] if given else [beside]
        if not given and os.path.isabs(user):  # who has neither HOME nor an entry among users keeps the ~
            places += [os.path.join(user, "mesh-dse", own)]
        self._path = next(filter(_writable, places), beside)

    @classmethod
    def from_function(cls, function: Callable[..., Any], source: str) -> "_Place":
        return cls(function, source)

    def ensure_cache_path(self) -> None:
        """Does nothing: `_writable` has made the folder where it can be made."""

    def get_cache_path(self) -> str:
        return self._path

    def get_source_stamp(self) -> str:
        return _stamp(self._folder)

    def get_disambiguator(self) -> str:
        return str(self._line)


@lru_cache
def _writable(path: str) -> bool:
    try:
        os.makedirs(path, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return False
    return True


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = [_Place]


class _Cache(caching.FunctionCache):
    """The cache of one function, with a file lock so that one of several processes compiles and the others load."""

    _impl_class = _Implementation

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._name = function.__qualname__
        self._turn = FileLock(os.path.join(self._cache_path, f"{self._impl.filename_base}.lock"))

    @property
    def empty(self) -> bool:
        """Whether nothing is kept that is valid."""
        with contextlib.suppress(OSError):
            return not self._cache_file._load_index()  # type: ignore[no-untyped-call]
        return True

    def load_overload(self, *args: Any) -> Any:
        self._turn.release(force=True)
        overload = self._load(*args)
        if overload is not None:
            return overload
        compiling.note_compilation(self._name)
        if not _writable(self._cache_path):
            return None
        with contextlib.suppress(Timeout, OSError, NotImplementedError):  # file systems without locks
            self._turn.acquire(timeout=LOCK_TIMEOUT_S)
            overload = self._load(*args)
            if overload is not None:
                self._turn.release()
        return overload

    def save_overload(self, *args: Any) -> None:
        with contextlib.suppress(OSError):  # what cannot be written is compiled again
            super().save_overload(*args)  # type: ignore[no-untyped-call]
        self._turn.release(force=True)

    def _load(self, *args: Any) -> Any:
        with contextlib.suppress(OSError):
            return super().load_overload(*args)  # type: ignore[no-untyped-call]
