"""SparseMatMul: a CSR matrix times a dense matrix."""
