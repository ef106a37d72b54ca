"""What an author sees when a kernel does not compile, fails or throws."""

import numpy as np
import pytest

from opforge.build import library_for
from opforge.build.cache import cache_dir
from opforge.errors import ArgumentError, BuildError, OpforgeError, SchemaError, ToolchainError

pytestmark = pytest.mark.compiler

HEAD = '#include "opforge/kernel.h"\n'
GOOD = (
    "template <class T> opforge::Status {f}(opforge::Context& c, opforge::View<const T, 1> x, double s, "
    "opforge::View<T, 1> y)"
)


def test_error_names_the_authors_file_and_line(scale):
    cc = HEAD + "\n" + GOOD.format(f="wrong") + " {\n  return undeclared_name;\n}\n"
    operator = scale("Wrong", cc=cc)
    with pytest.raises(BuildError) as caught:
        library_for([operator])
    text = str(caught.value)
    source = operator.sources[0]
    assert text.startswith(f"test.build::Wrong:1: {source}:4: the compiler refuses the kernel: ")
    assert "'undeclared_name' was not declared in this scope" in text
    assert "return undeclared_name;" in text
    assert f"correct the line {source}:4" in text
    assert not list(cache_dir().rglob("*.so"))
    assert not list(cache_dir().rglob("tmp-*"))


def test_signature_mismatch_shows_the_declaration_to_write(scale):
    cc = HEAD + "template <class T> void mismatch(opforge::Context&, opforge::View<T, 2>) {}\n"
    operator = scale("Mismatch", cc=cc)
    with pytest.raises(BuildError) as caught:
        library_for([operator])
    text = str(caught.value)
    assert f"{operator.declared_at}: the compiler refuses the kernel: no matching function for call to" in text
    assert "opforge::Status mismatch(opforge::Context& context, opforge::View<const T, 1> x, double scale, " in text
    assert "opforge::View<T, 1> y);" in text


def test_undefined_symbol_is_a_link_error(scale):
    cc = HEAD + "void elsewhere();\n" + GOOD.format(f="unlinked") + " { elsewhere(); return opforge::kOk; }\n"
    with pytest.raises(BuildError, match="the link failed") as caught:
        library_for([scale("Unlinked", cc=cc)])
    assert "elsewhere()" in str(caught.value)


def test_missing_header_is_named(scale):
    with pytest.raises(BuildError, match=r"nowhere\.h: No such file or directory"):
        library_for([scale("NoHeader", cc='#include "nowhere.h"\n')])


def test_source_that_vanished(scale):
    operator = scale("Vanished")
    operator.sources[0].unlink()
    with pytest.raises(SchemaError, match="kernel source not found"):
        library_for([operator])


def test_kernel_error_text_becomes_an_exception(scale):
    operator = scale("Refuses")
    with pytest.raises(ArgumentError, match=r"test\.build::Refuses:1: scale is -1, expected scale >= 0"):
        operator(np.ones(3, np.float32), scale=-1.0)


def test_exception_of_the_author_becomes_error_text(scale):
    cc = HEAD + "#include <stdexcept>\n" + GOOD.format(f="throws") + ' { throw std::runtime_error("no way"); }\n'
    with pytest.raises(OpforgeError, match=r"test\.build::Throws:1: the kernel threw: no way"):
        scale("Throws", cc=cc)(np.ones(3, np.float32))


def test_exception_inside_parallel_for_is_carried_over(scale):
    loop = 'c.parallel_for(x.shape(0), 1, [&](int64_t, int64_t) { throw std::runtime_error("in a worker"); });'
    body = f" {{ {loop} return 0; }}\n"
    cc = HEAD + "#include <stdexcept>\n" + GOOD.format(f="worker") + body
    with pytest.raises(OpforgeError, match="the kernel threw: in a worker"):
        scale("Worker", cc=cc)(np.ones(3, np.float32))


def test_void_kernels_and_overloads_serve(scale):
    parameters = "opforge::Context&, opforge::View<const float, 1> x, double, opforge::View<float, 1> y"
    cc = HEAD + f"void plain({parameters}) {{ y(0) = x(0) + 1; }}\n"
    assert scale("Plain", cc=cc)(np.zeros(1, np.float32)).tolist() == [1.0]


def test_kernel_operator_without_compiler_says_so(scale, monkeypatch, tmp_path):
    operator = scale("NoCompiler")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ToolchainError) as caught:
        operator(np.ones(3, np.float32))
    text = str(caught.value)
    assert text.startswith("test.build::NoCompiler:1: missing compiler: a kernel operator runs compiled code only")
    assert "g++: not on PATH" in text
    assert "apt-get install g++" in text
    assert "OPFORGE_LIBRARY_PATH" in text


def test_jit_off_forbids_compiling(scale, monkeypatch):
    monkeypatch.setenv("OPFORGE_JIT", "off")
    with pytest.raises(ToolchainError, match="OPFORGE_JIT=off forbids compiling"):
        scale("Off")(np.ones(3, np.float32))


def test_unknown_jit_mode(scale, monkeypatch):
    monkeypatch.setenv("OPFORGE_JIT", "sometimes")
    with pytest.raises(ArgumentError, match="OPFORGE_JIT: unknown mode"):
        library_for([scale("Sometimes")])


def test_hanging_compiler_is_stopped(scale, monkeypatch, tmp_path):
    from opforge.build import compile as module

    slow = tmp_path / "hangs"
    slow.write_text('#!/bin/sh\ncase "$*" in *-dM*) exec g++ "$@" ;; esac\nsleep 60\n')
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.3)
    with pytest.raises(BuildError, match="the compiler did not finish"):
        library_for([scale("Hangs")])
