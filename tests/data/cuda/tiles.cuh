// tiles.cuh: included by kernels.cu, so that headers beside a source are translated too.
#pragma once

template <int kSize>
__device__ void load_tiles(float (&a)[kSize][kSize + 1], float (&b)[kSize][kSize], const float* left,
                           const float* right, int row, int column, int start, int m, int n, int k) {
  const int x = threadIdx.x, y = threadIdx.y;
  a[y][x] = row < m && start + x < k ? left[row * k + start + x] : 0.0f;
  b[y][x] = column < n && start + y < k ? right[(start + y) * n + column] : 0.0f;
}
