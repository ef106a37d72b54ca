"""The ctypes structs have the offsets of the C header."""

import ctypes
import subprocess

import pytest

from opforge._paths import include_dir
from opforge.build import abi
from opforge.build.toolchain import find_compiler

STRUCTS = {
    "opforge_dtype": abi.DType,
    "opforge_device": abi.Device,
    "opforge_tensor": abi.Tensor,
    "opforge_string": abi.String,
    "opforge_attribute": abi.Attribute,
    "opforge_arguments": abi.Arguments,
    "opforge_context": abi.Context,
    "opforge_kernel": abi.Kernel,
    "opforge_operator": abi.Operator,
    "opforge_library": abi.Library,
    "opforge_host": abi.Host,
}


@pytest.mark.compiler
def test_offsets_equal_those_of_the_header(tmp_path):
    rows = []
    for name, struct in STRUCTS.items():
        rows.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, *_ in struct._fields_:
            rows.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
    source = tmp_path / "offsets.cc"
    source.write_text('#include <cstdio>\n#include "opforge/abi.h"\nint main() {\n' + "\n".join(rows) + "\n}\n")
    program = tmp_path / "offsets"
    subprocess.run([*find_compiler().command, f"-I{include_dir()}", str(source), "-o", str(program)], check=True)
    printed = dict(line.split() for line in subprocess.check_output([program], text=True).splitlines())
    expected = {}
    for name, struct in STRUCTS.items():
        expected[name] = ctypes.sizeof(struct)
        for field, *_ in struct._fields_:
            expected[f"{name}.{field}"] = getattr(struct, field).offset
    assert {key: int(value) for key, value in printed.items()} == expected


@pytest.mark.compiler
def test_abi_header_is_plain_c(tmp_path):
    source = tmp_path / "plain.c"
    source.write_text('#include "opforge/abi.h"\nint size(void) { return (int)sizeof(opforge_library); }\n')
    command = [find_compiler().command[0], "-x", "c", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run([*command, "-c", f"-I{include_dir()}", str(source), "-o", str(tmp_path / "plain.o")], check=True)
