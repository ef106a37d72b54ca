"""Graph passes over onnx-ir models, one per file; each module is a pass (see ``_contract``)."""
