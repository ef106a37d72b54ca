"""The kernel ABI from plain C: a hand-written library and a hand-written host, both compiled as C11."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{ROOT / 'include'}"]


@pytest.mark.compiler
@pytest.mark.parametrize("sanitizer", [[], ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]])
def test_a_host_in_c_runs_a_library_in_c(tmp_path, sanitizer):
    library, host = tmp_path / "libhandwritten.so", tmp_path / "host"
    data = ROOT / "tests" / "data"
    shared = ["-fPIC", "-shared", str(data / "handwritten_library.c"), "-o", str(library), "-lm"]
    subprocess.run(["cc", *FLAGS, *sanitizer, *shared], check=True)
    program = [str(data / "plain_c_host.c"), "-o", str(host), "-lm", "-ldl"]
    subprocess.run(["cc", *FLAGS, *sanitizer, *program], check=True)
    done = subprocess.run(
        [str(host), str(library)], capture_output=True, text=True, check=False, env={"ASAN_OPTIONS": "detect_leaks=0"}
    )
    assert (done.returncode, done.stdout) == (0, "all right\n"), done.stdout + done.stderr
