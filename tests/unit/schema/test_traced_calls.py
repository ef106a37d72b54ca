"""An operator whose very first call is inside torch.compile: the host is imported during tracing, without a break."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# One process, since importing torch is slow; each operator's first call is a traced one.
CODE = """\
import opforge as of, torch
names = ("CustomGELU", "ClipSigmoid", "ModSigmoid", "Mish", "Swish")
gelu, clip, mod, mish, swish = (of.load(f"opforge.ops:{name}")[0] for name in names)
x = torch.linspace(-3, 3, 7, requires_grad=True)
for f in (
    lambda t: gelu(t) * 2,
    lambda t: clip(t, lo=0.25) + 1,
    lambda t: mod(threshold=t * 0.5, x=t),
    lambda t: gelu(mod(clip(t, hi=0.75), mish(t))),
):
    g = torch.compile(f, fullgraph=True, backend="aot_eager")
    y = g(x)
    y.sum().backward()
    torch.testing.assert_close(y, f(x))
    torch.testing.assert_close(g(x), f(x))

class Module(torch.nn.Module):
    def forward(self, x):
        return swish(x)

program = torch.export.export(Module(), (torch.randn(7),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
assert "swish" in str(program.graph), program.graph
y = torch.randn(4)
torch.testing.assert_close(program.module()(y), swish(y))
print("all good")
"""


def test_first_calls_are_traced():
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert result.stdout == "all good\n", result.stderr[-3000:]
