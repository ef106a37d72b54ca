"""Imports run one way: a layer imports only layers below it, and no layer imports a framework when it is imported."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "opforge"

# Lowest first; names on one line are peers that do not import each other's insides upwards.
LAYERS = [
    {"errors", "_environment", "_paths", "_files", "_quiet", "_sources"},
    {"schema"},
    {"expr"},
    {"codegen"},
    {"build"},
    {"frameworks", "engines", "onnx", "passes", "ops", "cuda"},
    {"bin", "targets"},
    {"verify", "profiling", "monitor", "report"},
    {"pipeline"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FACADES = set("torch tensorflow jax executorch litert ncnn onnxruntime openvino tensorrt __init__ __main__".split())
FRAMEWORKS = {
    "torch",
    "tensorflow",
    "jax",
    "onnxruntime",
    "ai_edge_litert",
    "openvino",
    "tensorrt",
    "executorch",
    "ncnn",
    "transformers",
    "onnxscript",
    "scipy",
}


def files():
    return sorted(p for p in SOURCE.rglob("*.py") if "_lib" not in p.parts)


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(node: ast.AST, top_level_only: bool):
    """Yield imported module names; inside functions and TYPE_CHECKING blocks only when asked for."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            # `from opforge import schema` names the layer in the alias.
            if child.module == "opforge":
                yield from (f"opforge.{alias.name}" for alias in child.names)
            else:
                yield child.module
        elif top_level_only and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        elif top_level_only and isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        else:
            yield from imports(child, top_level_only)


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_run_one_way(path):
    layer = layer_of(path)
    if layer in FACADES:
        return
    assert layer in RANK, f"{path.name} lies in no known layer; add it to LAYERS with its place"
    for name in imports(ast.parse(path.read_text()), top_level_only=False):
        parts = name.split(".")
        if parts[0] != "opforge" or len(parts) == 1:
            continue
        target = parts[1]
        if target in RANK:
            assert RANK[target] <= RANK[layer], (
                f"{path.relative_to(SOURCE)} imports {name}: {layer} must not know {target}; "
                "move the code down or call it from above"
            )


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_framework_is_imported_at_module_level(path):
    relative = path.relative_to(SOURCE)
    if relative.parts[0] in {"frameworks", "engines"} and len(relative.parts) > 2:
        return  # a host's own folder is loaded only when the host is used
    if relative.parts[0] in {"torch.py", "onnxruntime.py", "openvino.py", "executorch.py"}:
        return
    for name in imports(ast.parse(path.read_text()), top_level_only=True):
        assert name.split(".")[0] not in FRAMEWORKS, (
            f"{relative} imports {name} at module level; import it where it is used"
        )


def test_import_is_light():
    code = (
        "import sys, time; t = time.process_time(); import opforge; d = time.process_time() - t; "
        "names = {'torch', 'tensorflow', 'jax', 'onnx', 'onnxruntime', 'numpy', 'scipy'}; "
        "heavy = sorted({m.split('.')[0] for m in sys.modules} & names); "
        "print(d, heavy)"
    )
    seconds = []
    for _ in range(5):  # the first may compile its modules, and a loaded machine slows some
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        time, heavy = done.stdout.split(" ", 1)
        assert heavy.strip() == "[]"
        seconds.append(float(time))
        if min(seconds) < 0.3:
            break
    assert min(seconds) < 0.3
