// cuda.cu: SparseMatMul on a device: a sparse matrix A in CSR form (values, indices, indptr) times a dense matrix, and
// what its gradients need:
//
//   sparse_matmul              out[m, n] = A dense                dense [k, n]
//   sparse_matmul_grad_dense   out[k, n] = A^T dense              dense [m, n]
//   sparse_matmul_grad_values  out[nnz]  = (left right^T) at A's entries    left [m, n], right [k, n]
//
// Sums are formed in float for the half types, in an order that does not depend on the run. What is no CSR matrix gives
// NaN everywhere, and is refused with the position where the environment has OPFORGE_CUDA_CHECK=1: that waits for the
// device, which calls do not otherwise.
#include "csr.cuh"
#include "library.cuh"
#include "multiply.cuh"
#include "transpose.cuh"

namespace csr {

constexpr int kRun = 32;  // entries of a group, one after the other
constexpr int kDotsByLibrary = 1;  // of the variants that TUNING in cases.py names

inline Cusparse::Algorithm algorithm_of(int variant) {
  return variant == kLibraryAnyOrder ? Cusparse::kFastest : Cusparse::kMergedRows;
}

// A lane's W columns from `column` on; those beyond the last are 0. The same columns whether or not packs can be
// loaded, so that bits do not depend on it.
template <int W, bool kPacks, class T, class R>
__device__ void load(const T* row, int64_t column, int64_t n, R (&loaded)[W]) {
  if (kPacks) {
    const Pack<T, W> pack = opforge::cuda::load_pack<T, W>(row + column);
#pragma unroll
    for (int w = 0; w < W; ++w) loaded[w] = static_cast<R>(opforge::cuda::widen(pack.element[w]));
  } else {
#pragma unroll
    for (int w = 0; w < W; ++w)
      loaded[w] = column + w < n ? static_cast<R>(opforge::cuda::widen(row[column + w])) : R(0);
  }
}

template <int W, bool kPacks, class T, class I>
__global__ void __launch_bounds__(opforge::cuda::kThreads, kResident)
    dots(Matrix<T, I> a, const T* left, const T* right, int64_t n, int lanes, T* out, const Facts* facts) {
  using R = compute_t<T>;
  const bool valid = is_valid(facts);
  const int lane = static_cast<int>(threadIdx.x) % lanes, groups = static_cast<int>(blockDim.x) / lanes;
  const unsigned all = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1u;
  const unsigned mask = all << (static_cast<int>(threadIdx.x) % 32 / lanes * lanes);
  const int64_t runs = (a.entries + kRun - 1) / kRun, step = static_cast<int64_t>(gridDim.x) * groups;
  for (int64_t run = blockIdx.x * static_cast<int64_t>(groups) + threadIdx.x / lanes; run < runs; run += step) {
    const int64_t begin = run * kRun, end = begin + kRun < a.entries ? begin + kRun : a.entries;
    int64_t row = valid ? row_of(a.starts, a.m, begin) : 0;
    for (int64_t p = begin; p < end; ++p) {
      R sums[W] = {};
      if (valid) {
        while (static_cast<int64_t>(a.starts[row + 1]) <= p) ++row;
        const T* from = left + row * n;
        const T* with = right + static_cast<int64_t>(a.columns[p]) * n;
        for (int64_t column = static_cast<int64_t>(lane) * W; column < n; column += static_cast<int64_t>(lanes) * W) {
          R x[W], y[W];
          load<W, kPacks>(from, column, n, x);
          load<W, kPacks>(with, column, n, y);
#pragma unroll
          for (int w = 0; w < W; ++w) sums[w] = opforge::cuda::fused(x[w], y[w], sums[w]);
        }
      }
      R sum = sums[0];
#pragma unroll
      for (int w = 1; w < W; ++w) sum += sums[w];
      for (int reach = lanes / 2; reach > 0; reach /= 2) sum += __shfl_xor_sync(mask, sum, reach);
      if (lane == 0) out[p] = valid ? opforge::cuda::narrow<T>(sum) : not_a_number<T>();
    }
  }
}

template <class T, class I>
Matrix<T, I> matrix(const T* values, View<const I, 1> indices, View<const I, 1> indptr, int64_t k) {
  return {values, indices.data(), indptr.data(), indptr.shape(0) - 1, k, indices.shape(0)};
}

}  // namespace csr

template <class T, class I>
opforge::Status sparse_matmul(opforge::cuda::Context& context, csr::View<const T, 1> values,
                              csr::View<const I, 1> indices, csr::View<const I, 1> indptr,
                              csr::View<const T, 2> dense, csr::View<T, 2> out) {
  const csr::Matrix<T, I> a = csr::matrix(values.data(), indices, indptr, dense.shape(0));
  const opforge_choice choice = context.tuned(values, indices, indptr, dense, out);
  if (!csr::is_variant(choice.variant)) return csr::refuse_variant(context, choice.variant);
  auto launch = context.launch(out.size());
  if (!launch) return launch.status();
  csr::Facts* facts = nullptr;
  if (const opforge::Status status = csr::find_facts(context, launch, a, &facts)) return status;
  if (csr::is_library(choice.variant) && csr::is_for_library(a, out.shape(1))) {
    csr::Library library(launch, choice);
    if (library)
      csr::multiply_by(library, launch, a, csr::Cusparse::kPlain, dense.data(), out.shape(1), out.data(), facts,
                       csr::algorithm_of(choice.variant));
    if (!library.missed()) return launch.finish();
  }
  csr::multiply(context, a, dense.data(), out.shape(1), out.data(), facts, csr::own_variant(choice.variant));
  return launch.finish();
}

template <class T, class I>
opforge::Status sparse_matmul_grad_dense(opforge::cuda::Context& context, csr::View<const T, 1> values,
                                         csr::View<const I, 1> indices, csr::View<const I, 1> indptr,
                                         csr::View<const T, 2> dense, csr::View<const T, 2> like,
                                         csr::View<T, 2> out) {
  const csr::Matrix<T, I> a = csr::matrix(values.data(), indices, indptr, out.shape(0));
  if (sizeof(I) == 4 && a.m > INT32_MAX)
    return context.fail("the transpose of %lld rows needs indices of 64 bits", static_cast<long long>(a.m));
  const opforge_choice choice = context.tuned(values, indices, indptr, dense, like, out);
  if (!csr::is_variant(choice.variant)) return csr::refuse_variant(context, choice.variant);
  auto launch = context.launch(out.size());
  if (!launch) return launch.status();
  csr::Facts* facts = nullptr;
  if (const opforge::Status status = csr::find_facts(context, launch, a, &facts)) return status;
  const bool by_library = csr::is_library(choice.variant) && csr::is_for_library(a, out.shape(1));
  // cuSPARSE can turn the matrix while it multiplies, but adds in any order then.
  const bool is_turned = !by_library || choice.variant != csr::kLibraryAnyOrder;
  csr::Matrix<T, I> turned = is_turned ? csr::transposed(context, launch, a, facts) : a;
  if (by_library) {
    csr::Library library(launch, choice);
    if (library)
      csr::multiply_by(library, launch, turned,
                       is_turned ? csr::Cusparse::kPlain : csr::Cusparse::kTransposed, dense.data(), out.shape(1),
                       out.data(), facts, csr::algorithm_of(choice.variant));
    if (!library.missed()) return launch.finish();
    if (!is_turned) turned = csr::transposed(context, launch, a, facts);
  }
  csr::multiply(context, turned, dense.data(), out.shape(1), out.data(), facts, csr::own_variant(choice.variant));
  return launch.finish();
}

template <class T, class I>
opforge::Status sparse_matmul_grad_values(opforge::cuda::Context& context, csr::View<const I, 1> indices,
                                          csr::View<const I, 1> indptr, csr::View<const T, 2> left,
                                          csr::View<const T, 2> right, csr::View<T, 1> out) {
  constexpr int kWide = opforge::cuda::kPack<T>;
  const int64_t n = left.shape(1);
  const csr::Matrix<T, I> a = csr::matrix<T, I>(nullptr, indices, indptr, right.shape(0));
  const opforge_choice choice = context.tuned(indices, indptr, left, right, out);
  if (choice.variant < 0 || choice.variant > csr::kDotsByLibrary)
    return context.fail(OPFORGE_STATUS_UNSUPPORTED, "there is no variant %d: 1 is cuSPARSE", choice.variant);
  auto launch = context.launch(out.size());
  if (!launch) return launch.status();
  csr::Facts* facts = nullptr;
  if (const opforge::Status status = csr::find_facts(context, launch, a, &facts)) return status;
  if (choice.variant == csr::kDotsByLibrary && csr::is_for_library(a, n)) {
    csr::Library library(launch, choice);
    if (library) csr::dots_by(library, launch, a, left.data(), right.data(), n, out.data(), facts);
    if (!library.missed()) return launch.finish();
  }
  const int lanes = csr::shape_for<kWide>(n).lanes;
  const int64_t wanted = (a.entries + csr::kRun - 1) / csr::kRun * lanes;
  const unsigned blocks = opforge::cuda::blocks_for(wanted), threads = csr::block_for(wanted);
  if (left.template takes_packs<kWide>() && right.template takes_packs<kWide>()) {
    csr::dots<kWide, true><<<blocks, threads, 0, launch.stream()>>>(a, left.data(), right.data(), n,
                                                                                   lanes, out.data(), facts);
  } else {
    csr::dots<kWide, false><<<blocks, threads, 0, launch.stream()>>>(a, left.data(), right.data(), n,
                                                                                    lanes, out.data(), facts);
  }
  return launch.finish();
}
