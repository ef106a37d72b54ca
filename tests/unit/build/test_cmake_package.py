"""find_package(opforge): a stranger's C project is built against the package as it lies here, and runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import opforge as of

_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
_CMAKE = shutil.which("cmake", path=_PATH)
pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(_CMAKE is None, reason="cmake is not installed (pip install cmake)"),
]

PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(embed C)
find_package(opforge {version} REQUIRED CONFIG)
add_executable(program program.c)
target_link_libraries(program PRIVATE opforge::runtime)
set(places "${{opforge_INCLUDE_DIR}}\\n${{opforge_LIBRARY_DIR}}\\n${{opforge_RUN_EXECUTABLE}}")
file(WRITE ${{CMAKE_BINARY_DIR}}/places "${{places}}")
"""
PROGRAM = """
#include <opforge/runtime.h>
#include <stdio.h>
int main(void) { printf("%s\\n", opforge_runtime_version()); return 0; }
"""


def configure(folder, version, place=None):
    (folder / "CMakeLists.txt").write_text(PROJECT.format(version=version))
    (folder / "program.c").write_text(PROGRAM)
    command = [_CMAKE, "-S", folder, "-B", folder / "build", f"-Dopforge_DIR={place or of.cmake_dir()}"]
    environment = {**os.environ, "PATH": _PATH}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment), environment


def test_a_project_is_built_and_runs(tmp_path):
    done, environment = configure(tmp_path, "0.1")
    assert done.returncode == 0, done.stderr
    subprocess.run([_CMAKE, "--build", tmp_path / "build"], check=True, capture_output=True, env=environment)
    said = subprocess.run([tmp_path / "build" / "program"], check=True, capture_output=True, text=True).stdout
    assert said.strip() == of.__version__
    places = (tmp_path / "build" / "places").read_text().splitlines()
    assert [Path(place).resolve() for place in places[:2]] == [of.include_dir().resolve(), of.library_dir().resolve()]
    assert os.access(places[2], os.X_OK)


@pytest.mark.parametrize("version", ["0.2", "1.0", "0.1.9", "0.0"])
def test_another_version_is_refused(tmp_path, version):
    done, _ = configure(tmp_path, version)
    assert done.returncode != 0
    assert f"version: {of.__version__}" in done.stderr


def test_a_package_without_its_library_says_so(tmp_path):
    package = tmp_path / "opforge"
    shutil.copytree(of.cmake_dir(), package / "cmake")
    shutil.copytree(of.include_dir(), package / "include")
    done, _ = configure(tmp_path, "0.1", package / "cmake")
    assert done.returncode != 0
    words = " ".join(done.stderr.split())
    assert "_lib/libopforge.so is missing: install opforge again" in words
