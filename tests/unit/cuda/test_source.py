"""From CUDA C++ to C++: what is replaced, what is left alone, what is refused."""

import pytest

from opforge.cuda.source import includes, rewrite
from opforge.errors import UnsupportedError


def rewritten(text):
    return rewrite(text, "k.cu").partition("\n")[2]


def test_a_launch_becomes_a_call_and_arguments_are_evaluated_once():
    got = rewritten("void f() { ns::kernel<float, 4><<<grid(n), 256, 0, stream>>>(x, f(a, b)); }")
    assert '::opforge::cuda::Launcher("ns::kernel<float, 4>", grid(n), 256, 0, stream)' in got
    assert "{ ns::kernel<float, 4>(opforge_arguments...); }, x, f(a, b));" in got


def test_a_launch_without_arguments():
    assert rewritten("k<<<1, 2>>>();").endswith("{ k(opforge_arguments...); });")


@pytest.mark.parametrize(
    "text",
    [
        "// k<<<1, 2>>>(x) and __shared__ float a[4];\n",
        "/* asm and\n __shared__ int b; */\n",
        'const char* words = "k<<<1, 2>>>(\\"x\\")";\n',
        "char c = '\"'; int shared = a << 3;\n",
        'auto raw = R"(asm <<< >>>)";\n',
    ],
)
def test_comments_strings_and_other_words_are_left_alone(text):
    assert rewritten(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a();\nk<T>\n<<<1,\n 2>>>(\n x,\n y);\nb();\n",
        "{\n__shared__\nfloat\n a[4],\n b[2][3];\nb();\n}\n",
        "#define L(n) \\\n  k<<<n, \\\n  2>>>(x); \\\n  b()\nc();\n",
    ],
)
def test_lines_keep_their_numbers(text):
    got = rewritten(text)
    assert got.count("\n") == text.count("\n")
    marks = ["b();", "b()", "c();"]
    for mark in marks:
        if mark in text:
            assert got[: got.rindex(mark)].count("\n") == text[: text.rindex(mark)].count("\n")


def test_shared_variables():
    got = rewritten("__shared__ alignas(16) volatile std::pair<int, float> a[kSize][kSize + 1], b;")
    assert "struct a_shared { alignas(16) std::pair<int, float> value [kSize][kSize + 1]; }" in got
    assert "struct b_shared { alignas(16) std::pair<int, float> value ; }" in got
    assert 'auto& b = ::opforge::cuda::shared<b_shared>(&b_key, "b").value;' in got


def test_dynamic_shared_memory():
    got = rewritten("extern __shared__ __align__(16) unsigned char memory[];")
    assert got == "unsigned char* const memory = ::opforge::cuda::dynamic_shared<unsigned char>();"


def test_includes_in_quotes():
    text = '#include <cuda_runtime.h>\n  # include "a/b.cuh"\n#include "c.h"\n'
    assert list(includes(text)) == ["a/b.cuh", "c.h"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('int x;\nasm("bar.sync 0;");', "inline PTX"),
        ("int x;\nnamespace cg = cooperative_groups;", "cooperative groups"),
        ("int x;\nusing namespace nvcuda::wmma;", "warp matrix operations"),
        ("int x;\ncudaTextureObject_t t;", "cudaTextureObject_t"),
        ("int x;\n__shared__;", "this declaration of a shared variable"),
        ("int x;\nk<<<1, 2;", "this way of launching a kernel"),
    ],
)
def test_what_is_not_modelled_is_refused_with_its_line(text, words):
    with pytest.raises(UnsupportedError) as caught:
        rewrite(text, "mine.cu")
    said = str(caught.value)
    assert f"does not model {words}" in said
    assert "mine.cu:2" in said
    assert "OPFORGE_CUDA_EMULATED" in said


def test_guarded_lines_are_not_looked_at():
    text = '#ifndef OPFORGE_CUDA_EMULATED\n#if A\nasm("x");\n#endif\nasm("y");\n#else\nint z;\n#endif\n'
    assert rewritten(text) == text
    with pytest.raises(UnsupportedError):
        rewritten(text + 'asm("z");\n')
