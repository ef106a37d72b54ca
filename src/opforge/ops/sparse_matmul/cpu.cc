// cpu.cc: a sparse matrix A in CSR form (values, indices, indptr) times a dense matrix, and what its
// gradients need:
//
//   sparse_matmul              out[m, n] = A dense                dense [k, n]
//   sparse_matmul_grad_dense   out[k, n] = A^T dense              dense [m, n]
//   sparse_matmul_grad_values  out[nnz]  = (left right^T) at A's entries    left [m, n], right [k, n]
//
// Sums are formed in float for the half types, in the order of the entries (in 16 lanes for the third), so
// results do not depend on the number of threads. Columns are taken in panels whose part of the dense matrix
// stays in the second-level cache while all rows pass over it; within a panel a row's sums stay in registers.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "opforge/kernel.h"
#include "opforge/vector_math.h"

namespace {

using opforge::compute_t;
using opforge::Context;
using opforge::Status;
using opforge::View;

// The natural vector: 16, 8 or 4 floats, half as many doubles.
template <class T>
constexpr int kLanes = opforge::vm::kLanes * 4 / static_cast<int>(sizeof(compute_t<T>));
constexpr int kSumLanes = 16;  // of a dot product, whatever the vectors
constexpr int kWide = 8;       // vectors of sums per row: half of the registers
constexpr int64_t kPanelBytes = 512 * 1024;
constexpr int64_t kChunkWork = 64 * 1024;  // multiplications per task, about

template <class T>
using Vector = typename opforge::vm::RawOf<compute_t<T>, kLanes<T>>::Type;

// Halves widen on the way in and round once on the way out.
template <class T>
OPFORGE_INLINE Vector<T> load(const T* from) {
  namespace raw = opforge::vm::raw;
  if constexpr (sizeof(T) == 2) {
    raw::Half<kLanes<T>> bits;
    std::memcpy(&bits, from, sizeof bits);
    if constexpr (std::is_same_v<T, opforge::f16>) return raw::f16_to_float<kLanes<T>>(bits);
    if constexpr (std::is_same_v<T, opforge::bf16>) return raw::bf16_to_float<kLanes<T>>(bits);
  } else {
    Vector<T> values;
    std::memcpy(&values, from, sizeof values);
    return values;
  }
}
template <class T>
OPFORGE_INLINE void store(T* to, const Vector<T>& sums) {
  namespace raw = opforge::vm::raw;
  if constexpr (sizeof(T) == 2) {
    raw::Half<kLanes<T>> bits;
    if constexpr (std::is_same_v<T, opforge::f16>) bits = raw::float_to_f16<kLanes<T>>(sums);
    if constexpr (std::is_same_v<T, opforge::bf16>) bits = raw::float_to_bf16<kLanes<T>>(sums);
    std::memcpy(to, &bits, sizeof bits);
  } else {
    std::memcpy(to, &sums, sizeof sums);
  }
}

// a * b + c, fused where the profile is fast, as in the vector code.
template <class R>
OPFORGE_INLINE R multiply_add(R a, R b, R c) {
  if constexpr (!opforge::vm::kFast) {
    return a * b + c;
  } else if constexpr (sizeof(R) == 4) {
    return __builtin_fmaf(a, b, c);
  } else {
    return __builtin_fma(a, b, c);
  }
}

// The entries of one row (or column): value and dense row of each.
template <class R, class I>
struct Entries {
  const R* values;
  const I* rows;
  int64_t begin, end;
};

// K vectors of sums of one row. Rows of `dense` lie `stride` elements apart.
template <int K, class T, class R, class I>
OPFORGE_INLINE void accumulate(const Entries<R, I>& entries, const T* dense, int64_t stride, T* out) {
  using V = Vector<T>;
  V sums[K] = {};
  for (int64_t p = entries.begin; p < entries.end; ++p) {
    const T* row = dense + static_cast<int64_t>(entries.rows[p]) * stride;
    const V value = opforge::vm::raw::set<V>(static_cast<compute_t<T>>(entries.values[p]));
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) sums[k] = opforge::vm::raw::mad(value, load(row + k * kLanes<T>), sums[k]);
  }
#pragma GCC unroll 8
  for (int k = 0; k < K; ++k) store(out + k * kLanes<T>, sums[k]);
}

// Columns [0, width) of one row. The last vector overlaps the one before it: equal bits written
// twice.
template <class T, class R, class I>
void multiply_row(const Entries<R, I>& entries, const T* dense, int64_t stride, int64_t width, T* out) {
  constexpr int L = kLanes<T>;
  int64_t j = 0;
  for (; j + kWide * L <= width; j += kWide * L) accumulate<kWide>(entries, dense + j, stride, out + j);
  if (j + 4 * L <= width) accumulate<4>(entries, dense + j, stride, out + j), j += 4 * L;
  if (j + 2 * L <= width) accumulate<2>(entries, dense + j, stride, out + j), j += 2 * L;
  if (j + L <= width) accumulate<1>(entries, dense + j, stride, out + j), j += L;
  if (j == width) return;
  if (width >= L) return accumulate<1>(entries, dense + width - L, stride, out + width - L);
  compute_t<T> sums[L] = {};
  for (int64_t p = entries.begin; p < entries.end; ++p) {
    const T* row = dense + static_cast<int64_t>(entries.rows[p]) * stride;
    const compute_t<T> value = entries.values[p];
    for (int64_t c = 0; c < width; ++c) sums[c] = multiply_add<compute_t<T>>(value, row[c], sums[c]);
  }
  for (int64_t c = 0; c < width; ++c) out[c] = sums[c];
}

// How the columns of the dense matrix are cut.
template <class T>
struct Panels {
  static constexpr int64_t kStep = kWide * kLanes<T>;
  int64_t width, count, n;
  Panels(int64_t k, int64_t columns) : n(columns) {
    const int64_t fitting = kPanelBytes / (static_cast<int64_t>(sizeof(T)) * (k > 0 ? k : 1)) / kStep * kStep;
    width = fitting < kStep ? kStep : fitting;
    count = n / width > 0 ? n / width : 1;  // the last one takes the rest
  }
  int64_t begin(int64_t panel) const { return panel * width; }
  int64_t end(int64_t panel) const { return panel == count - 1 ? n : (panel + 1) * width; }
};

// Rows a multiple of 1 KiB apart fall into few sets of the cache, so a panel does not stay there. Where its
// rows are read often enough, each panel is copied to contiguous memory first: panel p lies at begin(p) * k.
template <class T>
const T* pack(Context& context, const Panels<T>& panels, const T* dense, int64_t k, int64_t entries) {
  if (panels.count == 1 || entries < 4 * k || panels.n * static_cast<int64_t>(sizeof(T)) % 1024 != 0)
    return nullptr;
  T* packed = context.scratch<T>(k * panels.n);
  context.parallel_for(k, kChunkWork / panels.n + 1, [&](int64_t first, int64_t last) {
    for (int64_t panel = 0; panel < panels.count; ++panel) {
      const int64_t begin = panels.begin(panel), width = panels.end(panel) - begin;
      for (int64_t r = first; r < last; ++r) {
        std::memcpy(packed + begin * k + r * width, dense + r * panels.n + begin,
                    static_cast<size_t>(width) * sizeof(T));
      }
    }
  });
  return packed;
}

// out[m, n] = entries of row r times dense[k, n]; `starts` has m + 1 positions.
template <class T, class R, class I, class P>
void multiply(Context& context, const R* values, const I* rows, const P* starts, int64_t m, int64_t k,
              const T* dense, int64_t n, T* out) {
  if (m == 0 || n == 0) return;
  const Panels<T> panels(k, n);
  const int64_t total = starts[m];
  const T* packed = pack(context, panels, dense, k, total);
  const int64_t wanted = kChunkWork / ((total / m + 1) * panels.end(0)) + 1;
  const int64_t chunk = wanted < m ? wanted : m;
  const int64_t chunks = (m + chunk - 1) / chunk;
  context.parallel_for(panels.count * chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t panel = task / chunks, column = panels.begin(panel), width = panels.end(panel) - column;
      const T* from = packed ? packed + column * k : dense + column;
      const int64_t stride = packed ? width : n;
      const int64_t first = task % chunks * chunk;
      const int64_t last = first + chunk < m ? first + chunk : m;
      for (int64_t r = first; r < last; ++r) {
        const Entries<R, I> entries{values, rows, static_cast<int64_t>(starts[r]),
                                    static_cast<int64_t>(starts[r + 1])};
        multiply_row(entries, from, stride, width, out + r * n + column);
      }
    }
  });
}

// Checks the invariants of CSR and says where the first of them fails.
template <class I>
Status check(Context& context, View<const I, 1> indices, View<const I, 1> indptr, int64_t k) {
  const int64_t nnz = indices.shape(0), m = indptr.shape(0) - 1;
  const I* starts = indptr.data();
  const auto at = [](const I* from, int64_t i) { return static_cast<long long>(from[i]); };
  if (starts[0] != 0) return context.fail("indptr[0] is %lld, expected 0", at(starts, 0));
  for (int64_t r = 0; r < m; ++r) {
    if (starts[r + 1] < starts[r]) {
      return context.fail("indptr decreases at row %lld: indptr[%lld] is %lld, indptr[%lld] is %lld",
                          static_cast<long long>(r), static_cast<long long>(r), at(starts, r),
                          static_cast<long long>(r + 1), at(starts, r + 1));
    }
  }
  if (starts[m] != nnz) {
    return context.fail("indptr[%lld] is %lld, expected the number of entries, %lld",
                        static_cast<long long>(m), at(starts, m), static_cast<long long>(nnz));
  }
  const I* columns = indices.data();
  const uint64_t limit = static_cast<uint64_t>(k);
  bool bad = false;
  for (int64_t p = 0; p < nnz; ++p) bad |= static_cast<uint64_t>(static_cast<int64_t>(columns[p])) >= limit;
  if (!bad) return opforge::kOk;
  int64_t p = 0, r = 0;
  while (static_cast<uint64_t>(static_cast<int64_t>(columns[p])) < limit) ++p;
  while (starts[r + 1] <= p) ++r;
  return context.fail("indices[%lld] (row %lld) is %lld, expected 0 <= index < %lld",
                      static_cast<long long>(p), static_cast<long long>(r), at(columns, p),
                      static_cast<long long>(k));
}

// The balanced tree of the 16 lanes: (l, l+8), (l, l+4), (l, l+2), (l, l+1).
template <class R>
OPFORGE_INLINE R lane_sum(R (&lanes)[kSumLanes]) {
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

// Dot products of one left row with `K` right rows at once, so that their sums overlap in the pipeline.
template <int K, class T, class I>
OPFORGE_INLINE void dots(const T* left, const T* right, int64_t n, const I* columns, T* out) {
  using V = Vector<T>;
  constexpr int L = kLanes<T>;
  constexpr int P = kSumLanes / L;
  V sums[K][P] = {};
  const T* rows[K];
  for (int q = 0; q < K; ++q) rows[q] = right + static_cast<int64_t>(columns[q]) * n;
  int64_t j = 0;
  for (; j + kSumLanes <= n; j += kSumLanes) {
    for (int part = 0; part < P; ++part) {
      const V a = load(left + j + part * L);
#pragma GCC unroll 4
      for (int q = 0; q < K; ++q) {
        sums[q][part] = opforge::vm::raw::mad(a, load(rows[q] + j + part * L), sums[q][part]);
      }
    }
  }
  for (int q = 0; q < K; ++q) {
    compute_t<T> lanes[kSumLanes];
    std::memcpy(lanes, sums[q], sizeof lanes);
    for (int64_t e = j; e < n; ++e)
      lanes[e - j] = multiply_add<compute_t<T>>(left[e], rows[q][e], lanes[e - j]);
    out[q] = lane_sum(lanes);
  }
}

}  // namespace

template <class T, class I>
Status sparse_matmul(Context& context, View<const T, 1> values, View<const I, 1> indices,
                     View<const I, 1> indptr, View<const T, 2> dense, View<T, 2> out) {
  const int64_t m = out.shape(0), k = dense.shape(0), n = dense.shape(1);
  if (const Status status = check(context, indices, indptr, k)) return status;
  multiply(context, values.data(), indices.data(), indptr.data(), m, k, dense.data(), n, out.data());
  return opforge::kOk;
}

// A^T is A read by columns: a counting sort of the entries by column, which keeps the order of rows within
// each.
template <class T, class I>
Status sparse_matmul_grad_dense(Context& context, View<const T, 1> values, View<const I, 1> indices,
                                View<const I, 1> indptr, View<const T, 2> dense, View<const T, 2>,
                                View<T, 2> out) {
  const int64_t m = dense.shape(0), n = dense.shape(1), k = out.shape(0), nnz = indices.shape(0);
  if (const Status status = check(context, indices, indptr, k)) return status;
  int64_t* starts = context.scratch<int64_t>(k + 1);
  int64_t* next = context.scratch<int64_t>(k);
  int64_t* rows = context.scratch<int64_t>(nnz);
  T* sorted = context.scratch<T>(nnz);
  for (int64_t c = 0; c <= k; ++c) starts[c] = 0;
  for (int64_t p = 0; p < nnz; ++p) ++starts[indices[p] + 1];
  for (int64_t c = 0; c < k; ++c) {
    next[c] = starts[c];
    starts[c + 1] += starts[c];
  }
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t p = indptr[r]; p < indptr[r + 1]; ++p) {
      const int64_t place = next[indices[p]]++;
      rows[place] = r;
      sorted[place] = values[p];
    }
  }
  multiply(context, sorted, rows, starts, k, m, dense.data(), n, out.data());
  return opforge::kOk;
}

template <class T, class I>
Status sparse_matmul_grad_values(Context& context, View<const I, 1> indices, View<const I, 1> indptr,
                                 View<const T, 2> left, View<const T, 2> right, View<T, 1> out) {
  const int64_t m = left.shape(0), n = left.shape(1), k = right.shape(0), nnz = indices.shape(0);
  if (const Status status = check(context, indices, indptr, k)) return status;
  const int64_t per_row = m > 0 ? (nnz / m + 1) * (n + 1) : 1;
  context.parallel_for(m, kChunkWork / per_row + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = left.data() + r * n;
      int64_t p = indptr[r];
      for (; p + 4 <= indptr[r + 1]; p += 4)
        dots<4>(row, right.data(), n, indices.data() + p, out.data() + p);
      for (; p < indptr[r + 1]; ++p) dots<1>(row, right.data(), n, indices.data() + p, out.data() + p);
    }
  });
  return opforge::kOk;
}
