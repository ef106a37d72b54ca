"""What of CUDA is found, which parts fit each other, what is missing and how to get it; with toolkits of scripts."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import opforge as of
from opforge import _paths
from opforge._paths import include_dir
from opforge.build import doctor
from opforge.build.builder import _primary_key
from opforge.build.cuda import architectures as of_cuda
from opforge.build.cuda import builder as of_builder
from opforge.build.cuda import nvrtc as of_nvrtc
from opforge.build.cuda import toolkit as found
from opforge.build.cuda.architectures import chosen_architectures, gencode
from opforge.build.cuda.builder import cuda_plan, find_host_compiler
from opforge.build.cuda.nvrtc import compile_formula, find_nvrtc
from opforge.build.cuda.toolkit import find_toolkit, toolkit_candidates
from opforge.build.cuda_driver import Device, Found
from opforge.build.plan import plan_library
from opforge.build.toolchain import find_compiler
from opforge.engines.tensorrt import _ptx
from opforge.engines.tensorrt._ptx import compile_ptx
from opforge.errors import ArgumentError, ToolchainError, UnsupportedError
from opforge.ops import mish
from tests.unit.build.test_toolchain import script

KNOWN = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100f")


@pytest.fixture
def toolkit(tmp_path, monkeypatch):
    """Nothing of CUDA but one toolkit of version 13.0 as NVIDIA's packages lay it, named by CUDA_HOME."""
    site = tmp_path / "site-packages"
    root = site / "nvidia" / "cu13"
    for folder in ("bin", "nvvm/bin", "include/crt", "include/cccl/nv", "lib"):
        (root / folder).mkdir(parents=True)
    tool(root, "nvcc", "13.0.88")
    tool(root, "ptxas", "13.0.88")
    script(root / "nvvm" / "bin", "cicc", "exit 1")
    (root / "include/crt/host_config.h").write_text("#if __GNUC__ > 15\n#if (__clang_major__ >= 21)\n")
    (root / "include/cuda_runtime.h").touch()
    (root / "include/cuda_runtime_api.h").write_text("#define CUDART_VERSION  13000\n")
    (root / "include/cccl/nv/target").touch()
    (root / "lib/libcudart_static.a").touch()
    for name in ("nvidia_nvvm-13.0.88", "nvidia_cuda_crt-13.0.88", "nvidia_cuda_cccl-13.0.85"):
        (site / f"{name}.dist-info").mkdir()
    monkeypatch.setattr(found, "_every_candidate", lambda: [("CUDA_HOME", root)])
    found.forget_toolkit()
    yield root
    found.forget_toolkit()


def tool(root, name, version, known="sm_80 sm_90"):
    script(root / "bin", name, f'echo "Cuda compilation tools, release 13.0, V{version}"; echo "{known}"')


def refused() -> ToolchainError:
    found.forget_toolkit()
    with pytest.raises(ToolchainError, match="no CUDA toolkit serves") as caught:
        find_toolkit()
    return caught.value


def test_a_toolkit_of_packages(toolkit):
    it = find_toolkit()
    assert (it.root, it.version, it.release) == (toolkit, "13.0.88", (13, 0))
    assert it.library_folder == toolkit / "lib"
    assert it.include_folders == (toolkit / "include", toolkit / "include" / "cccl")
    assert it.newest_host == {"gcc": 15, "clang": 20}
    assert it.architectures == ("sm_80", "sm_90")
    assert str(it) == f"nvcc 13.0.88 ({toolkit}/bin/nvcc, found by CUDA_HOME)"


def test_a_part_of_another_minor_version(toolkit):
    site = toolkit.parent.parent
    (site / "nvidia_nvvm-13.0.88.dist-info").rename(site / "nvidia_nvvm-13.5.37.dist-info")
    error = refused()
    assert "nvcc 13.0.88, but cicc is of version 13.5.37 (package nvidia-nvvm)" in str(error)
    assert error.hint == "pip install 'nvidia-nvvm==13.0.*'"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: tool(root, "ptxas", "13.5.40"), "ptxas is of version 13.5.40 (package nvidia-cuda-nvcc)"),
        (
            lambda root: (root / "include/cuda_runtime_api.h").write_text("#define CUDART_VERSION 12080\n"),
            "cuda_runtime.h is of version 12.8 (package nvidia-cuda-runtime)",
        ),
        (
            lambda root: (root / "include/cccl/nv/target").unlink(),
            "nv/target of cccl is missing (package nvidia-cuda-cccl)",
        ),
        (lambda root: (root / "nvvm/bin/cicc").unlink(), "cicc is missing (package nvidia-nvvm)"),
        (lambda root: (root / "bin/nvcc").unlink(), "there is no bin/nvcc that can be read"),
        (lambda root: tool(root, "nvcc", "11.8.89"), "nvcc 11.8.89 is too old, 12.0 is the oldest that serves"),
        (lambda root: script(root / "bin", "nvcc", "echo hello"), "nvcc does not say its version"),
        (lambda root: (root / "bin/ptxas").chmod(0o644), "ptxas does not say its version: [Errno 13]"),
        (
            lambda root: (root / "include/cuda_runtime_api.h").unlink(),
            "cuda_runtime.h does not say its version: [Errno 2]",
        ),
    ],
)
def test_what_does_not_fit(toolkit, change, words):
    change(toolkit)
    error = refused()
    assert f"CUDA_HOME ({toolkit}): " in str(error)
    assert words in str(error)


def test_a_part_that_hangs(toolkit, monkeypatch):
    script(toolkit / "bin", "ptxas", "exec sleep 300")
    ask = found._words

    def hurried(command):  # the other parts have time, on a busy machine too
        monkeypatch.setattr(found, "_PROBE_SECONDS", 0.5 if Path(command[0]).name == "ptxas" else 200.0)
        return ask(command)

    monkeypatch.setattr(found, "_words", hurried)
    assert "ptxas does not say its version: Command" in str(refused())


def test_a_broken_toolkit_hides_no_other(toolkit, tmp_path, monkeypatch):
    other = tmp_path / "other" / "nvidia" / "cu13"
    shutil.copytree(toolkit, other)
    (other / "bin/ptxas").chmod(0o644)
    monkeypatch.setattr(found, "_every_candidate", lambda: [("CUDA_HOME", other), ("PATH", toolkit)])
    assert find_toolkit().root == toolkit


def test_a_part_whose_package_names_no_version(toolkit):
    site = toolkit.parent.parent
    (site / "nvidia_nvvm-13.0.88.dist-info").rename(site / "nvidia_nvvm-editable.dist-info")
    assert "cicc does not say its version: " in str(refused())


def test_a_folder_that_is_a_link_to_itself(tmp_path, monkeypatch):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    monkeypatch.setattr(found, "_every_candidate", lambda: [("CUDA_HOME", tmp_path / "loop")])
    assert f"CUDA_HOME ({tmp_path / 'loop'}): there is no bin/nvcc" in str(refused())


@pytest.fixture
def two_toolkits(toolkit, tmp_path, monkeypatch):
    """A toolkit of 13.0, and behind it one of 12.8."""
    older = tmp_path / "older" / "nvidia" / "cu12"
    shutil.copytree(toolkit, older)
    for name in ("nvcc", "ptxas"):
        tool(older, name, "12.8.93")
    (older / "include/cuda_runtime_api.h").write_text("#define CUDART_VERSION  12080\n")
    monkeypatch.setattr(found, "_every_candidate", lambda: [("CUDA_HOME", toolkit), ("PATH", older)])
    return toolkit, older


@pytest.mark.parametrize(
    ("driver", "taken"),
    [("12040", 1), ("12090", 1), ("13000", 0), ("13020", 0), ("14000", 0), ("11080", 0), (None, 0)],
)
def test_of_several_the_one_that_the_driver_runs(two_toolkits, monkeypatch, driver, taken):
    rows = () if driver is None else (Device(0, "GPU", 90, 1, 1, 1, driver),)
    monkeypatch.setattr(found, "find_devices", lambda: Found(rows))
    assert find_toolkit().root == two_toolkits[taken]
    assert (find_toolkit().misfit is None) == (driver != "11080")


def test_of_several_the_one_that_makes_code_for_the_gpu(two_toolkits, monkeypatch):
    tool(two_toolkits[1], "nvcc", "12.8.93", "sm_50 sm_70 sm_90")
    monkeypatch.setattr(found, "find_devices", lambda: Found((Device(0, "GPU", 70, 1, 1, 1, "13000"),)))
    assert find_toolkit().root == two_toolkits[1]


def test_doctor_says_that_the_gpu_is_too_old(toolkit, monkeypatch):
    monkeypatch.setattr(found, "find_devices", lambda: Found((Device(0, "GPU", 70, 1, 1, 1, "13000"),)))
    row = doctor._cuda()
    assert row.state == "optional"
    assert row.detail.endswith(
        "\nthe GPU here is an sm_70, the oldest that it knows is sm_80: what it builds does not run on this machine"
    )
    assert row.hint == "install a toolkit of CUDA 12"


def test_doctor_says_that_the_driver_is_too_old(toolkit, monkeypatch):
    monkeypatch.setattr(found, "find_devices", lambda: Found((Device(0, "GPU", 90, 1, 1, 1, "12080"),)))
    row = doctor._cuda()
    assert row.state == "optional"
    assert row.detail.endswith("\nthe driver here serves CUDA 12.8: what it builds does not run on this machine")
    assert row.hint == "update the driver, or install a toolkit of CUDA 12"


@pytest.mark.parametrize(
    ("change", "ask", "words"),
    [
        (lambda root: (root / "bin/nvcc").chmod(0o644), "architectures", "architectures it compiles(?s:.*)Errno 13"),
        (lambda root: (root / "bin/nvcc").unlink(), "architectures", "architectures it compiles(?s:.*)Errno 2"),
        (lambda root: (root / "bin/nvcc").write_bytes(b"\x7fELF"), "architectures", "compiles(?s:.*)Errno 8"),
        (lambda root: script(root / "bin", "nvcc", "kill -9 $$"), "architectures", "compiles(?s:.*)SIGKILL"),
        (lambda root: script(root / "bin", "nvcc", "exec sleep 300"), "architectures", "compiles(?s:.*)timed out"),
        (lambda root: script(root / "bin", "nvcc", ""), "architectures", "compiles(?s:.*)got: no words"),
        (lambda root: script(root / "bin", "nvcc", "echo lost"), "architectures", "compiles(?s:.*)got: lost"),
        (lambda root: (root / "nvvm/bin/cicc").unlink(), "identity", "part of the CUDA toolkit(?s:.*)cicc"),
        (
            lambda root: (root / "include/crt/host_config.h").unlink(),
            "newest_host",
            "which C\\+\\+ compilers it takes(?s:.*)Errno 2",
        ),
        (
            lambda root: (root / "include/crt/host_config.h").write_text(""),
            "newest_host",
            "which C\\+\\+ compilers it takes(?s:.*)no version of GCC or Clang",
        ),
    ],
)
def test_a_toolkit_that_breaks_after_it_was_found(toolkit, monkeypatch, change, ask, words):
    it = find_toolkit()
    change(toolkit)
    monkeypatch.setattr(found, "_PROBE_SECONDS", 0.5 if words.endswith("timed out") else 200.0)
    with pytest.raises(ToolchainError, match=words) as caught:
        getattr(it, ask)
    assert caught.value.where == str(it)
    assert "CUDA_HOME" in caught.value.hint


def test_an_nvcc_that_goes_before_it_compiles(toolkit, tmp_path, monkeypatch):
    monkeypatch.setenv("OPFORGE_CACHE", str(tmp_path / "cache"))
    assert find_toolkit().architectures == ("sm_80", "sm_90")
    (toolkit / "bin/nvcc").chmod(0o644)
    words = rf"{toolkit}/bin/nvcc: the compiler cannot be started any more(?s:.*)Errno 13"
    with pytest.raises(ToolchainError, match=words):
        of_builder.build_cuda_library(plan_library([mish]), architectures=["sm_80"])
    with pytest.raises(ToolchainError, match=r"nvcc does not run any more(?s:.*)Errno 13"):
        compile_ptx("kernel")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be loaded: .*undefined symbol: nvrtc"),
        (
            'const char* nvrtcGetErrorString(int) { return "INTERNAL"; } int nvrtcVersion(int*, int*) { return 11; }',
            r"cannot be loaded: (?s:.*)NVRTC fails(?s:.*)INTERNAL \(11\)",
        ),
    ],
)
def test_a_library_that_is_no_nvrtc_is_a_candidate_with_its_reason(toolkit, monkeypatch, text, words):
    source, library = toolkit / "fake.cc", toolkit / "lib" / "libnvrtc.so.13"
    source.write_text(f'extern "C" {{ {text} }}')
    subprocess.run([*find_compiler().command, "-shared", "-fPIC", source, "-o", library], check=True)
    (toolkit / "include/cuda_fp16.h").touch()
    monkeypatch.setattr(of_nvrtc, "_libraries", lambda: [library])
    with pytest.raises(ToolchainError, match=rf"there is no NVRTC(?s:.*)libnvrtc\.so\.13: {words}"):
        find_nvrtc.__wrapped__()


def test_all_that_is_missing_is_named_with_one_command(toolkit):
    (toolkit / "include/cccl/nv/target").unlink()
    (toolkit / "lib/libcudart_static.a").unlink()
    assert refused().hint == "pip install 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*'"


def test_nothing_at_all(monkeypatch):
    monkeypatch.setattr(found, "_every_candidate", list)
    error = refused()
    assert "got: candidates: no bin/nvcc anywhere" in str(error)
    assert "pip install 'opforge[cuda]'" in error.hint
    found.forget_toolkit()


def test_where_it_is_looked_for(toolkit, tmp_path, monkeypatch):
    monkeypatch.undo()
    other = tmp_path / "other"
    (other / "bin").mkdir(parents=True)
    tool(other, "nvcc", "13.0.88")
    monkeypatch.setenv("CUDA_HOME", str(other))
    monkeypatch.setenv("CUDA_PATH", str(other))
    monkeypatch.setattr(sys, "path", [str(toolkit.parent.parent)])
    monkeypatch.setenv("PATH", str(toolkit / "bin"))
    first, second = list(toolkit_candidates())[:2]
    assert first == ("CUDA_HOME", other)
    assert second == ("the packages of this environment", toolkit)


def test_a_host_compiler_that_nvcc_takes(toolkit, tmp_path, monkeypatch):
    assert find_host_compiler(find_toolkit()).kind in ("gcc", "clang")
    found.forget_toolkit()
    (toolkit / "include/crt/host_config.h").write_text("#if __GNUC__ > 8\n")
    with pytest.raises(ToolchainError, match="nvcc takes none of the C\\+\\+ compilers here") as caught:
        find_host_compiler(find_toolkit())
    assert "is too new for nvcc" in str(caught.value)
    assert "expected: gcc up to 8" in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (["sm_80", "sm_90"], ("sm_80", "sm_90", "compute_90")),
        (["90", "8.0"], ("sm_80", "sm_90", "compute_90")),
        (["10.0", "sm_80"], ("sm_80", "sm_100", "compute_100")),
        (["sm_90a"], ("sm_90a",)),  # no other GPU could take its PTX
        (["sm_100f", "sm_80"], ("sm_80", "sm_100f", "compute_80")),
        (["sm_80", "compute_80"], ("sm_80", "compute_80")),
        (["compute_75"], ("compute_75",)),
    ],
)
def test_architectures_as_users_write_them(wanted, chosen):
    assert chosen_architectures(wanted, KNOWN) == chosen


def test_architectures_of_this_machine(monkeypatch):
    def devices(*capabilities):
        rows = tuple(Device(k, "GPU", c, 1, 1, 1, "13000") for k, c in enumerate(capabilities))
        monkeypatch.setattr(of_cuda, "find_devices", lambda: Found(rows))
        return chosen_architectures(None, KNOWN)

    assert devices() == ("sm_80", "sm_90", "compute_90")
    assert devices(89, 89, 80) == ("sm_80", "sm_89", "compute_89")
    assert devices(130) == ("compute_100",)  # a device newer than the compiler takes the PTX
    assert devices(130, 90) == ("sm_90", "compute_100")
    assert devices(87) == ("compute_86",)
    assert devices(70, 90) == ("sm_90", "compute_90")
    words = r"no code for the GPU here(?s:.*)knows sm_60, sm_70\n(?s:.*)from sm_75 on(?s:.*)nvidia-cuda-nvrtc-cu12"
    with pytest.raises(ToolchainError, match=words):
        devices(70, 60)


@pytest.mark.parametrize("wanted", [["sm_70"], ["hopper"], ["sm_90b"], ["sm_80a"], [""]])
def test_no_such_architecture(wanted):
    with pytest.raises(ArgumentError, match=r"no architecture that this compiler knows(?s:.*)sm_75, sm_80") as failed:
        chosen_architectures(wanted, KNOWN)
    assert ("CUDA 12 for those from sm_50 on" in str(failed.value)) == (wanted == ["sm_70"])


def test_no_architecture():
    with pytest.raises(ArgumentError, match="no architecture"):
        chosen_architectures([], KNOWN)


def test_flags_of_architectures():
    chosen = ("sm_80", "sm_90", "compute_90")
    assert gencode(chosen)[1::2] == [
        "arch=compute_80,code=sm_80",
        "arch=compute_90,code=sm_90",
        "arch=compute_90,code=compute_90",
    ]
    assert gencode(chosen, together=True) == ["-gencode", "arch=compute_80,code=[sm_80,sm_90,compute_80]"]
    assert gencode(("sm_90a",), together=True) == ["-gencode", "arch=compute_90a,code=sm_90a"]


def test_the_plan_of_the_library_beside():
    plan = plan_library([mish])
    assert cuda_plan(plan).name == f"{plan.name}_cuda"
    assert cuda_plan(plan).operators == plan.operators


@pytest.fixture
def recipe(toolkit, monkeypatch):
    """How the CUDA library of mish is made, without making it."""
    monkeypatch.setattr(of_builder, "build", lambda plan, recipe: recipe)
    return lambda: of_builder.build_cuda_library(plan_library([mish]), architectures=["sm_80"])


def test_headers_of_a_package_below_the_toolkit_are_depended_on(toolkit, recipe):
    made = recipe()  # conda: the toolkit's folder is the environment's
    site = toolkit / "lib" / "python3.11" / "site-packages"
    assert made.depends_on(site / "opforge" / "include" / "opforge" / "cuda" / "kernel.cuh")
    assert made.depends_on(site / "gate" / "cuda.cu")
    assert not made.depends_on(toolkit / "include" / "cuda_runtime.h")
    assert not made.depends_on(toolkit / "include" / "cccl" / "nv" / "target")


def test_processors_make_no_other_library(recipe, monkeypatch):
    monkeypatch.setattr(of_builder, "processors", lambda: 2)
    few = recipe()
    monkeypatch.setattr(of_builder, "processors", lambda: 64)
    many = recipe()
    assert few.effort != many.effort
    assert many.effort[0].startswith("--threads=")
    assert not any("--threads" in flag for flag in many.flags)
    assert (_primary_key(few), few.text) == (_primary_key(many), many.text)


@pytest.fixture
def headers(tmp_path, monkeypatch):
    """Headers of ours that a test may edit, and a cache of its own."""
    folder = tmp_path / "include"
    shutil.copytree(include_dir(), folder)
    monkeypatch.setattr(_paths, "include_dir", lambda: folder)
    monkeypatch.setattr(of_nvrtc, "include_dir", lambda: folder)
    monkeypatch.setenv("OPFORGE_CACHE", str(tmp_path / "cache"))
    return folder / "opforge"


def append(path):
    path.write_text(path.read_text() + "\n")


def test_kept_ptx_follows_headers_and_flags(toolkit, headers, monkeypatch):
    said = 'while [ $# -gt 1 ]; do [ "$1" = -o ] && date +%s%N > "$2"; shift; done; echo V13.0.88'
    script(toolkit / "bin", "nvcc", said)
    made = [compile_ptx("kernel")]
    assert compile_ptx("kernel") == made[0]
    for header in ("cuda/space.h", "cuda/functions.cuh", "abi.h", "detail/elementwise.h"):
        append(headers / header)
        made.append(compile_ptx("kernel"))
    monkeypatch.setattr(_ptx, "_FLAGS", ("-O2",))
    made.append(compile_ptx("kernel"))
    assert len(set(made)) == 6


def test_kept_formulas_follow_headers_and_flags(headers, monkeypatch):
    class Counting(of_nvrtc.Nvrtc):
        def __init__(self):
            self.path, self.version, self.include_folders, self.made = Path("nvrtc"), "13.0", (), 0

        def compile(self, source, architecture, kernels, where):
            self.made += 1
            return of_nvrtc.Compiled(b"image", {}, "")

    nvrtc = Counting()
    monkeypatch.setattr(of_nvrtc, "find_nvrtc", lambda: nvrtc)
    changes = (lambda: None, lambda: append(headers / "cuda" / "space.h"), lambda: append(headers / "abi.h"))
    counts = []
    for change in changes:
        change()
        compile_formula(mish, "f32", "sm_80")
        compile_formula(mish, "f32", "sm_80")
        counts.append(nvrtc.made)
    monkeypatch.setattr(Counting, "flags", lambda self, architecture: [architecture, "-fmad=true"])
    compile_formula(mish, "f32", "sm_80")
    assert [*counts, nvrtc.made] == [1, 2, 3, 4]


def test_operators_without_kernels_are_refused(tmp_path):
    (tmp_path / "cpu.cc").touch()
    operator = of.kernel(
        "test.cuda_build::Bare", "(x: T[n]) -> (y: T[n])", types={"T": [of.f32]}, sources=[tmp_path / "cpu.cc"],
        reference=lambda x: x,
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"no operator has a CUDA kernel(?s:.*)cuda\.cu(?s:.*)got: cpu\.cc"):
        cuda_plan(plan_library([operator]))
