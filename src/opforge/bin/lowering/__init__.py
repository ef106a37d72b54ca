"""From a cleaned ONNX graph to a program: operator selection, fusion, layouts, packing."""
