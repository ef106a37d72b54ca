"""The operator object: everything that is declared about one operator, callable on tensors of any host."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from opforge.errors import UnsupportedError
from opforge.schema import describe
from opforge.schema.arguments import arrange, as_arrays, call_text, widened
from opforge.schema.attributes import AttributeValue, coerce_all
from opforge.schema.author import author_function
from opforge.schema.declaration import caller_location, check_declaration, check_names, snake_case
from opforge.schema.dtypes import DType
from opforge.schema.hosts import call_numpy, decomposed, load_host
from opforge.schema.infer import PLAIN, Binding, Guards, ShapeLike
from opforge.schema.signature import Signature, format_types, parse_types

__all__ = ["FormulaLike", "Operator"]


@runtime_checkable
class FormulaLike(Protocol):
    """What the schema needs to know of a formula: a text that is equal exactly when the meaning is."""

    @property
    def canonical(self) -> str:
        """Canonical text of the traced formula, the same in every process."""
        ...


class Operator:
    """A declared operator.

    Made by ``opforge.formula`` and ``opforge.kernel``. Call it with tensors in the order of the signature (or by
    parameter name) and attributes by keyword; the first tensor of a framework decides which host computes.

    Attributes:
        domain: ONNX domain, e.g. ``com.example``.
        name: CamelCase name within the domain.
        since_version: first operator-set version of the domain with this schema.
        signature: the parsed signature.
        types: the dtypes that each type variable may take.
        pure: no effects and no state, so that it may be folded, shared and reordered.
        deterministic: equal inputs give equal bits.
        differentiable: has a gradient, or is declared to have none (then backward raises).
        is_gradient: is a generated gradient operator.
        autocast: one of ``AUTOCAST_RULES``.
        nan_policy: one of ``NAN_POLICIES``.
        host_name: snake_case name in hosts.
        doc: text for people.
        package: operator package that declares it; the id of its kernel library.
        formula: the formula, or None for a kernel operator.
        sources: kernel source files.
        strided: whether its kernels take any strides.
        reference_function: takes float64 (or integer, bool) arrays and attributes, gives arrays.
        module: Python module that declared it.
        declared_at: ``file:line`` of the declaration.
        routes: for hosts: what calls whose first framework tensor has a type go to; see ``set_route``.
        short_routes: the same for calls without attributes whose first argument has the type, where a host has a
            shorter way for them.
    """

    autograph_info__ = None
    """Marks the object for TensorFlow's AutoGraph as one whose code is called as it is, not converted."""

    def __init__(
        self,
        domain: str,
        name: str,
        signature: str | Signature,
        *,
        types: str | Mapping[str, Iterable[DType | str]] | None = None,
        since_version: int = 1,
        pure: bool = True,
        deterministic: bool = True,
        differentiable: bool | None = None,
        is_gradient: bool = False,
        autocast: str = "promote",
        nan_policy: str = "propagate",
        gradient: str | Callable[[], str | None] | None = None,
        host_name: str | None = None,
        doc: str = "",
        package: str = "",
        formula: FormulaLike | None = None,
        sources: Sequence[Path] = (),
        strided: bool = False,
        reference_function: Callable[..., Any] | None = None,
        derived: Sequence[Operator] | Callable[[], Sequence[Operator]] = (),
        onnx_body: str | None = None,
        module: str = "",
        declared_at: str = "",
    ) -> None:
        """Check the declaration.

        Args:
            domain: ONNX domain, dotted identifiers.
            name: CamelCase name.
            signature: text in the signature language, or a parsed one.
            types: ``"T: f32 f64; I: i32 i64"`` or a mapping from each type variable to its dtypes.
            since_version: at least 1.
            pure: see the class.
            deterministic: see the class.
            differentiable: None = whether a formula or a gradient is given.
            is_gradient: see the class.
            autocast: one of ``AUTOCAST_RULES``.
            nan_policy: one of ``NAN_POLICIES``.
            gradient: gradient program, or a function that gives it when it is first asked for.
            host_name: overrides the snake_case name.
            doc: text for people.
            package: operator package.
            formula: the formula of a formula operator.
            sources: kernel source files of a kernel operator.
            strided: whether these kernels take any strides; otherwise hosts pass dense tensors.
            reference_function: float64 reference.
            derived: gradient operators that belong to this one, or a function that gives them.
            onnx_body: nodes of an ONNX function in ONNX's text form, for runtimes without the kernel; a formula's
                body is derived.
            module: declaring Python module; found from the stack when empty.
            declared_at: place of the declaration; found from the stack when empty.

        Raises:
            SchemaError: the declaration is wrong.
        """
        where = check_declaration(domain, name, since_version, autocast, nan_policy)
        self.domain = domain
        self.name = name
        self.since_version = since_version
        self.signature = signature if isinstance(signature, Signature) else Signature.parse(signature, where=where)
        self.types = parse_types(types or {}, self.signature, where=where)
        self.pure = pure
        self.deterministic = deterministic
        has_gradient = formula is not None or gradient is not None
        self.differentiable = has_gradient if differentiable is None else differentiable
        self.is_gradient = is_gradient
        self.autocast = autocast
        self.nan_policy = nan_policy
        self.host_name = host_name or snake_case(name)
        self.doc = inspect.cleandoc(doc)
        self.package = package
        self.formula = formula
        self.sources = tuple(Path(source) for source in sources)
        self.strided = strided or formula is not None
        self.reference_function = reference_function
        if not module or not declared_at:
            found = caller_location()
            module, declared_at = module or found[0], declared_at or found[1]
        self.module = module
        self.declared_at = declared_at
        self.onnx_body = onnx_body
        self._gradient = gradient
        self._derived = derived
        self._input_names = frozenset(p.name for p in self.signature.inputs)
        self.routes: dict[type, Callable[..., Any]] = {}
        self.short_routes: dict[type, Callable[..., Any]] = {}
        check_names(where, self._input_names | {a.name for a in self.signature.attributes}, self.host_name)
        # What inspect.signature, help() and pydoc read.
        self.__name__ = self.host_name
        self.__qualname__ = self.host_name
        self.__module__ = module
        self.__signature__ = describe.python_signature(self.signature)
        self.__doc__ = describe.documentation(self)

    @property
    def qualified_name(self) -> str:
        """``domain::Name``."""
        return f"{self.domain}::{self.name}"

    @property
    def key(self) -> str:
        """``domain::Name:since_version``."""
        return f"{self.domain}::{self.name}:{self.since_version}"

    @property
    def host_namespace(self) -> str:
        """The domain as an identifier, e.g. ``com_example``."""
        return self.domain.replace(".", "_")

    @property
    def is_formula(self) -> bool:
        """Whether it is derived from a formula."""
        return self.formula is not None

    @property
    def flags(self) -> int:
        """The OPFORGE_OPERATOR bits of the ABI."""
        return (
            self.pure * 1
            + self.deterministic * 2
            + (self.differentiable and self.gradient is not None) * 4
            + self.is_formula * 8
            + self.is_gradient * 16
        )

    @property
    def types_text(self) -> str:
        """Canonical types text, e.g. ``T: f16 f32; I: i32 i64``."""
        return format_types(self.types)

    @property
    def gradient(self) -> str | None:
        """The gradient program, traced when first asked for; None where there is none."""
        if callable(self._gradient):
            self._gradient = self._gradient()
        return self._gradient

    @property
    def derived(self) -> tuple[Operator, ...]:
        """The gradient operators that belong to this operator, made when first asked for."""
        if callable(self._derived):
            self._derived = self._derived()
        return tuple(self._derived)

    @property
    def gradient_operator(self) -> Operator | None:
        """The generated ``<Name>Grad`` of a formula, or None; a kernel operator's gradient is only a program."""
        derived = self.derived
        return derived[0] if derived else None

    @functools.cached_property
    def schema_hash(self) -> str:
        """SHA-256 over the canonical declaration.

        Covers what a caller and a compiled library must agree on: name, version, signature, types, flags,
        policies and the formula, which is the operator's whole meaning. The gradient, documentation and kernel
        sources are not covered: a program that only runs forward does not depend on them.
        """
        formula = self.formula.canonical if self.formula is not None else ""
        content = (
            "opforge-schema-1",
            self.key,
            str(self.signature),
            self.types_text,
            f"pure={int(self.pure)} deterministic={int(self.deterministic)} differentiable={int(self.differentiable)}"
            f" gradient={int(self.is_gradient)}",
            f"autocast={self.autocast} nan_policy={self.nan_policy}",
            formula,
        )
        return hashlib.sha256("\n".join(content).encode()).hexdigest()

    def __call__(self, *tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401 - tensors of any framework
        """Compute the operator on tensors of the host that the first framework tensor belongs to.

        Args:
            *tensors: inputs in the order of the signature; an absent optional is None or left out at the end.
            **attributes: attributes, and inputs by parameter name.

        Returns:
            One tensor, or a tuple where the signature has several outputs.
        """
        if not attributes and tensors and (kind := type(tensors[0])) in self.short_routes:
            return self.short_routes[kind](*tensors)
        # PyTorch's tracer follows these lines, so they stay plain and read routes only after it is filled.
        if not attributes:  # the shortest way for the commonest call
            if tensors and self._prepare(kind := type(tensors[0])):
                return self.routes[kind](*tensors)
        elif not self._input_names.isdisjoint(attributes):
            tensors, attributes = self._by_position(tensors, attributes)
        for tensor in tensors:
            if self._prepare(kind := type(tensor)):
                return self.routes[kind](*tensors, **attributes)
        return call_numpy(self, tensors, attributes)

    def _prepare(self, kind: type) -> bool:
        """Make sure that ``routes`` has the function for tensors of this type; False = of no framework.

        NumPy arrays, numbers and absent inputs are of no framework, so that they go along with another's tensor.
        """
        return kind in self.routes or load_host(self, kind)

    # PyTorch's tracer calls a method marked so and takes its result as a constant, so that an operator whose first
    # call is a traced one can import its host (torch.compiler.assume_constant_result sets the same mark). It is a
    # method, because before PyTorch 2.13 the arguments of such a function must be constants, which `self` is not.
    _prepare.__dict__["_dynamo_marked_constant"] = True

    def _by_position(self, tensors: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Bring inputs that were given by name to their positions."""
        inputs = {name: value for name, value in named.items() if name in self._input_names}
        attributes = {name: value for name, value in named.items() if name not in self._input_names}
        arranged = self.arrange(tensors, inputs)
        if self.signature.variadic:
            return (*arranged[:-1], *arranged[-1]), attributes
        return tuple(arranged), attributes

    def set_route(self, kind: type, function: Callable[..., Any]) -> None:
        """Let calls whose first tensor has this type go to ``function(*tensors, **attributes)``; for hosts.

        An attribute ``short`` of the function, ``short(*tensors)``, takes those without attributes.
        """
        self.routes[kind] = function
        if (short := getattr(function, "short", None)) is not None:
            self.short_routes[kind] = short

    def arrange(self, tensors: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """Bring positional and keyword tensors into one list with an entry per parameter.

        An absent optional is None; the variadic input is a tuple.

        Raises:
            ArgumentError: too many tensors, one given twice, or one missing.
        """
        return arrange(self.qualified_name, self.signature, tensors, named)

    def bind(
        self,
        shapes: Sequence[ShapeLike],
        dtypes: Sequence[DType | None],
        attributes: Mapping[str, object] | None = None,
        *,
        where: str | None = None,
        guards: Guards = PLAIN,
    ) -> Binding:
        """Check a call's shapes, dtypes and attributes, and infer the outputs; see ``Signature.bind``."""
        return self.signature.bind(
            shapes, dtypes, attributes or {}, where=where or self.qualified_name, types=self.types, guards=guards
        )

    def coerce(self, attributes: Mapping[str, object]) -> dict[str, AttributeValue]:
        """Coerce a call's attributes, fill in defaults, and give them in declared order."""
        return coerce_all(self.signature.attributes, attributes, self.qualified_name)

    def reference(self, *arrays: Any, **attributes: Any) -> Any:  # noqa: ANN401 - arrays or a tuple of arrays
        """Compute the operator in float64 with NumPy.

        Args:
            *arrays: inputs; floating ones are widened to float64, others stay as they are.
            **attributes: attributes, and inputs by parameter name.

        Returns:
            A float64 (or integer, bool) array, or a tuple where the signature has several outputs.

        Raises:
            UnsupportedError: the operator has no reference.
            SchemaError: the author's function raises.
        """
        if self.reference_function is None:
            raise UnsupportedError(
                "the operator has no reference",
                where=self.qualified_name,
                hint="declare it with reference=, a function over float64 NumPy arrays",
            )
        named = {name: attributes.pop(name) for name in list(attributes) if name in self._input_names}
        inputs = widened(self.signature, self.arrange(arrays, named))
        coerced = self.coerce(attributes)
        if self.is_formula:
            return as_arrays(self.reference_function(*inputs, **coerced))
        with author_function("the reference raises", self.qualified_name, f"outputs for {call_text(inputs, coerced)}"):
            return as_arrays(self.reference_function(*inputs, **coerced))

    def decomposed(self, *tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401 - tensors of any framework
        """Compute a formula operator with the framework's own operators instead of our kernel.

        A compiler of the framework can fuse these with their neighbours, they run on devices that have no kernel, and
        they can be differentiated in every mode that the framework has. Results agree with the kernel's to rounding.

        Args:
            *tensors: inputs in the order of the signature.
            **attributes: attributes, and inputs by parameter name.

        Raises:
            UnsupportedError: the operator has no formula.
            ArgumentError: no tensor of a framework is given, or the inputs do not fit.
        """
        if not self._input_names.isdisjoint(attributes):
            tensors, attributes = self._by_position(tensors, attributes)
        return decomposed(self, tensors, attributes)

    decomposed.__dict__["autograph_info__"] = None  # as the object itself

    def grad_check(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - the report of opforge.verify
        """Check the operator's gradients against finite differences of its reference; see ``opforge.verify``."""
        return import_module("opforge.verify.gradients").grad_check(self, *arguments, **options)

    def __repr__(self) -> str:
        """Give key, signature and types."""
        types = f" {{{self.types_text}}}" if self.types else ""
        return f"<opforge.Operator {self.key} {self.signature}{types}>"

    def __reduce__(self) -> tuple[Callable[..., Operator], tuple[str, str, int, str]]:
        """Pickle by name: the other process finds the operator in its own registry."""
        return _find, (self.domain, self.name, self.since_version, self.module)

    def __copy__(self) -> Operator:
        """Operators are immutable declarations: a copy is the operator itself."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Operator:
        """Operators are immutable declarations: a copy is the operator itself."""
        return self


def _find(domain: str, name: str, version: int, module: str) -> Operator:
    from opforge.schema import registry

    if module and module != "__main__" and registry.find(domain, name, version) is None:
        with contextlib.suppress(ModuleNotFoundError):  # e.g. a file that the other process loaded by its path
            import_module(module)
    return registry.get(domain, name, version)
