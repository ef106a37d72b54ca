"""Where `check` runs an operator: the hosts that are named, and the words for names that are none."""

from importlib import util

import numpy as np
import pytest
import torch

from opforge.errors import ArgumentError
from opforge.ops import custom_gelu
from opforge.verify import check, hosts

pytestmark = pytest.mark.compiler


def hosts_of(report):
    return {row.host for row in report.rows if row.check == "values"}


def test_named_hosts_are_checked_in_their_order_and_no_others():
    assert [host.name for host in hosts.hosts(["torch", "numpy", "torch"])] == ["torch", "numpy"]
    report = check(custom_gelu, hosts=["numpy"])
    assert report.passed and hosts_of(report) == {"numpy"}
    assert "fake kernel" not in {row.check for row in report.rows}


def test_quick_is_numpy_unless_hosts_are_named():
    assert hosts_of(check(custom_gelu, "quick")) == {"numpy"}
    assert hosts_of(check(custom_gelu, "quick", hosts=("torch",))) == {"torch"}


@pytest.mark.parametrize(
    ("name", "mode"), [("torch", "traced"), ("torch", "compiled"), ("tensorflow", "traced"), ("jax", "traced")]
)
def test_an_error_of_ours_is_itself_where_a_framework_traces(name, mode):
    (host,) = hosts.hosts([name])
    x = np.ones(3, np.float32)

    def refuse(*tensors):
        raise ArgumentError("the planted error", where="nowhere")

    operator = refuse
    if name == "torch":  # which traces Python itself, and calls what is in an operator only
        operator = torch.library.custom_op(
            f"opforge_test::refuse_{mode}", lambda x: x, mutates_args=(), schema="(Tensor x) -> Tensor"
        )
        operator.register_fake(refuse)
    with pytest.raises(ArgumentError, match=r"^nowhere: the planted error"):
        host.in_mode(mode).compute(operator, [x], {})


def test_what_is_no_host_is_refused(monkeypatch, tmp_path):
    with pytest.raises(ArgumentError, match=r"there is no such host[\s\S]*numpy[\s\S]*did you mean torch\?"):
        check(custom_gelu, hosts=["troch"])
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match=r"jax is not installed[\s\S]*pip install 'opforge\[jax\]'"):
        check(custom_gelu, hosts=["jax"])
    with pytest.raises(ArgumentError, match="hosts are for operators"):
        check(tmp_path / "model.onnx", hosts=["numpy"])
