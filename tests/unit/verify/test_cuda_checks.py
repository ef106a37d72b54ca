"""`opforge check --device cuda-emulated`: CUDA kernels as a host of the checks, and under sanitizers."""

import pytest

from examples.block_float.op import block_float
from examples.fake_quantise.op import fake_quantise
from opforge.cli import main
from opforge.errors import ArgumentError
from opforge.ops import swish
from opforge.verify import check
from opforge.verify.cuda_checks import emulated_sanitized
from opforge.verify.hosts import hosts


def test_cuda_kernels_pass_the_checks_of_a_host():
    report = check(swish, "quick", hosts=["cuda-emulated"])
    assert report.passed, report.failures
    ran = {row.check for row in report.rows if row.host == "cuda-emulated"}
    assert {"values", "drawn", "boundary", "gradient", "gradient shapes"} <= ran


def test_a_kernel_of_shuffles_passes_them_too():
    report = check(block_float, "quick", hosts=["cuda-emulated"])
    assert report.passed, report.failures
    assert {"values", "boundary"} <= {row.check for row in report.rows if row.host == "cuda-emulated"}


def test_cuda_kernels_and_their_gradients_are_clean_under_a_sanitizer():  # `make cuda` has all operators, and races
    rows = list(emulated_sanitized(swish, ["address"], 0))
    assert all(row.passed for row in rows), rows
    assert [row.case.split(",")[0] for row in rows] == ["Swish", "SwishGrad"]


def test_an_operator_without_cuda_kernels_is_left_out_with_the_reason():
    report = check(fake_quantise, "quick", hosts=["cuda-emulated"], sanitize=["address"], isolate=False)
    assert not any(row.check.startswith("sanitize") for row in report.rows)  # not those of the CPU in their place
    (left_out,) = [row for row in report.rows if row.check == "host"]
    assert (left_out.case, left_out.host) == ("left out", "cuda-emulated")
    assert "it has no CUDA kernels: name a source for them" in left_out.detail
    assert not any(row.host == "cuda-emulated" for row in report.rows if row.check != "host")


def test_it_runs_only_for_those_who_name_it():
    assert "cuda-emulated" not in [host.name for host in hosts()]
    with pytest.raises(ArgumentError, match=r"no such host(?s:.*)cuda-emulated"):
        hosts(["cuda"])
    with pytest.raises(ArgumentError, match=r"no such sanitizer(?s:.*)address, undefined, thread(?s:.*)memory"):
        list(emulated_sanitized(swish, ["memory"], 0))


def test_the_device_and_hosts_exclude_each_other(capsys):
    code = main(["check", "opforge.ops:Swish", "--device", "cuda-emulated", "--host", "numpy"])
    assert code == 2
    assert "--host is for kernels of the CPU" in capsys.readouterr().err
