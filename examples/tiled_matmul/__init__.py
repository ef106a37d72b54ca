"""TiledMatMul: the CUDA kernel that everyone writes first, with what it takes to be right for any size."""
