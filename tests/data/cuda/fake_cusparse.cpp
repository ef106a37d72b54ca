// fake_cusparse.cpp: the calls of cuSPARSE that opforge makes, with the signatures of cusparse.h, over the
// host's memory.
#include "fake_library.h"

namespace {

struct Handle {
  void* stream = nullptr;
  int pointer_mode = -1;  // what nobody has set is not the host's
  int number = 0;
};
struct Sparse {
  int64_t rows, columns, entries;
  const void *starts, *indices;
  void* values;
  int index, type;

  int64_t start(int64_t r) const { return at(starts, r); }
  int64_t column(int64_t p) const { return at(indices, p); }
  int64_t at(const void* from, int64_t i) const {
    return index == 3 ? static_cast<const int64_t*>(from)[i] : static_cast<const int32_t*>(from)[i];
  }
};
struct Dense {
  int64_t rows, columns, stride;
  void* values;
  int type;
};

int handles;
constexpr int kInvalid = 3, kUnsupported = 10;
constexpr size_t kWorkspace = 1234;
void* fake_workspace;

std::string of(const char* name, int64_t value) {
  return std::string(" ") + name + "=" + std::to_string(value);
}

int noted(const char* call, const Handle* handle, const std::string& words) {
  fake_note(std::string(call) + of("handle", handle->number) +
            of("stream", static_cast<int64_t>(reinterpret_cast<uintptr_t>(handle->stream))) + words);
  return fake_failure(call);
}

// The compute type of a value type; -1 where there is none.
int computes(int type) {
  return type == kDouble ? kDouble : type == kFloat || type == kHalf || type == kBfloat ? kFloat : -1;
}
bool are_scalars(const void* alpha, const void* beta, int compute) {
  return load(alpha, 0, compute) == 1 && load(beta, 0, compute) == 0;
}
// The workspace is written throughout: what is too small shows under AddressSanitizer.
bool use(void* workspace) {
  if (workspace == nullptr || reinterpret_cast<uintptr_t>(workspace) % 128 != 0) return false;
  fake_workspace = workspace;
  memset(workspace, 0xa5, kWorkspace);
  return true;
}
// Every index is followed: one that is out of range is the caller's fault.
bool is_whole(const Sparse& a) {
  if (a.start(0) != 0 || a.start(a.rows) != a.entries) return false;
  for (int64_t r = 0; r < a.rows; ++r)
    if (a.start(r) > a.start(r + 1)) return false;
  for (int64_t p = 0; p < a.entries; ++p)
    if (a.column(p) < 0 || a.column(p) >= a.columns) return false;
  return true;
}

}  // namespace

// The last workspace, and its bytes: as many as were asked for.
FAKE_EXPORT void* fake_last_workspace(size_t* bytes) {
  *bytes = kWorkspace;
  return fake_workspace;
}
// Called when a handle is made.
FAKE_EXPORT void (*fake_at_create)() = nullptr;

FAKE_EXPORT int cusparseGetProperty(int which, int* value) { return fake_property(which, value); }
FAKE_EXPORT int cusparseCreate(Handle** handle) {
  if (fake_at_create != nullptr) fake_at_create();
  if (const int status = fake_failure("cusparseCreate")) return status;
  *handle = new Handle;
  (*handle)->number = ++handles;
  fake_note("cusparseCreate" + of("handle", handles));
  return 0;
}
FAKE_EXPORT int cusparseSetStream(Handle* handle, void* stream) {
  handle->stream = stream;
  return fake_failure("cusparseSetStream");
}
FAKE_EXPORT int cusparseSetPointerMode(Handle* handle, int mode) {
  handle->pointer_mode = mode;
  return 0;
}
FAKE_EXPORT int cusparseCreateCsr(Sparse** made, int64_t rows, int64_t columns, int64_t entries, void* starts,
                                  void* indices, void* values, int starts_type, int indices_type, int base,
                                  int type) {
  if (rows < 1 || columns < 1 || entries < 1 || !starts || !indices || !values) return kInvalid;
  if (starts_type != indices_type || starts_type < 2 || starts_type > 3 || base != 0) return kInvalid;
  *made = new Sparse{rows, columns, entries, starts, indices, values, starts_type, type};
  return fake_failure("cusparseCreateCsr");
}
FAKE_EXPORT int cusparseDestroySpMat(Sparse* matrix) {
  delete matrix;
  return 0;
}
FAKE_EXPORT int cusparseCreateDnMat(Dense** made, int64_t rows, int64_t columns, int64_t stride, void* values,
                                    int type, int order) {
  if (rows < 1 || columns < 1 || stride < columns || !values || order != 2) return kInvalid;
  *made = new Dense{rows, columns, stride, values, type};
  return 0;
}
FAKE_EXPORT int cusparseDestroyDnMat(Dense* matrix) {
  delete matrix;
  return 0;
}
FAKE_EXPORT int cusparseCreateDnVec(Dense** made, int64_t size, void* values, int type) {
  if (size < 1 || !values) return kInvalid;
  *made = new Dense{size, 1, 1, values, type};
  return 0;
}
FAKE_EXPORT int cusparseDestroyDnVec(Dense* vector) {
  delete vector;
  return 0;
}

namespace {

int fits_product(Handle* handle, int first, int second, const void* alpha, const Sparse* a, const Dense* b,
                 const void* beta, const Dense* c, int compute, int algorithm) {
  if (handle->pointer_mode != 0 || second != 0) return kInvalid;
  if (a->type != b->type || a->type != c->type || compute != computes(a->type)) return kUnsupported;
  if (!are_scalars(alpha, beta, compute)) return kInvalid;
  if (first != 0 && algorithm == 12) return kUnsupported;  // CSR_ALG3 turns no matrix
  const int64_t inner = first == 0 ? a->columns : a->rows, outer = first == 0 ? a->rows : a->columns;
  return b->rows == inner && c->rows == outer && b->columns == c->columns ? 0 : kInvalid;
}

void multiply(const Sparse& a, const Dense& b, const Dense& c, bool turned) {
  double* sums = static_cast<double*>(calloc(static_cast<size_t>(c.rows * c.columns), sizeof(double)));
  for (int64_t r = 0; r < a.rows; ++r)
    for (int64_t p = a.start(r); p < a.start(r + 1); ++p)
      for (int64_t j = 0; j < c.columns; ++j) {
        const int64_t to = turned ? a.column(p) : r, from = turned ? r : a.column(p);
        sums[to * c.columns + j] += load(a.values, p, a.type) * load(b.values, from * b.stride + j, b.type);
      }
  for (int64_t i = 0; i < c.rows; ++i)
    for (int64_t j = 0; j < c.columns; ++j)
      store(c.values, i * c.stride + j, c.type, sums[i * c.columns + j]);
  free(sums);
}

std::string about(const Sparse& a) {
  return of("rows", a.rows) + of("columns", a.columns) + of("entries", a.entries) + of("index", a.index) +
         of("type", a.type);
}

}  // namespace

FAKE_EXPORT int cusparseSpMM_bufferSize(Handle* handle, int first, int second, const void* alpha, Sparse* a,
                                        Dense* b, const void* beta, Dense* c, int compute, int algorithm,
                                        size_t* bytes) {
  if (const int status = fake_failure("cusparseSpMM_bufferSize")) return status;
  *bytes = kWorkspace;
  return fits_product(handle, first, second, alpha, a, b, beta, c, compute, algorithm);
}
FAKE_EXPORT int cusparseSpMM(Handle* handle, int first, int second, const void* alpha, Sparse* a, Dense* b,
                             const void* beta, Dense* c, int compute, int algorithm, void* workspace) {
  const std::string words = about(*a) + of("n", b->columns) + of("operation", first) +
                            of("compute", compute) + of("algorithm", algorithm) +
                            of("strides", b->stride + c->stride);
  if (const int status = noted("cusparseSpMM", handle, words)) return status;
  const int status = fits_product(handle, first, second, alpha, a, b, beta, c, compute, algorithm);
  if (status != 0) return status;
  if (!use(workspace) || !is_whole(*a)) return kInvalid;
  multiply(*a, *b, *c, first != 0);
  return 0;
}
FAKE_EXPORT int cusparseSpMV_bufferSize(Handle* handle, int operation, const void* alpha, Sparse* a, Dense* x,
                                        const void* beta, Dense* y, int compute, int algorithm,
                                        size_t* bytes) {
  *bytes = kWorkspace;
  return algorithm == 3 ? fits_product(handle, operation, 0, alpha, a, x, beta, y, compute, 0) : kUnsupported;
}
FAKE_EXPORT int cusparseSpMV(Handle* handle, int operation, const void* alpha, Sparse* a, Dense* x,
                             const void* beta, Dense* y, int compute, int algorithm, void* workspace) {
  const std::string words =
      about(*a) + of("operation", operation) + of("compute", compute) + of("algorithm", algorithm);
  if (const int status = noted("cusparseSpMV", handle, words)) return status;
  const int status = fits_product(handle, operation, 0, alpha, a, x, beta, y, compute, 0);
  if (status != 0) return status;
  if (!use(workspace) || !is_whole(*a)) return kInvalid;
  multiply(*a, *x, *y, false);
  return 0;
}

namespace {

int fits_dots(Handle* handle, int first, int second, const void* alpha, const Dense* a, const Dense* b,
              const void* beta, const Sparse* c, int compute) {
  if (handle->pointer_mode != 0 || first != 0 || second != 1) return kInvalid;
  if (c->type == kBfloat) return kUnsupported;  // as cuSPARSE may be
  if (a->type != b->type || a->type != c->type || compute != computes(a->type)) return kUnsupported;
  if (!are_scalars(alpha, beta, compute)) return kInvalid;
  return a->rows == c->rows && b->rows == c->columns && a->columns == b->columns ? 0 : kInvalid;
}

}  // namespace

FAKE_EXPORT int cusparseSDDMM_bufferSize(Handle* handle, int first, int second, const void* alpha, Dense* a,
                                         Dense* b, const void* beta, Sparse* c, int compute, int,
                                         size_t* bytes) {
  *bytes = kWorkspace;
  return fits_dots(handle, first, second, alpha, a, b, beta, c, compute);
}
FAKE_EXPORT int cusparseSDDMM(Handle* handle, int first, int second, const void* alpha, Dense* a, Dense* b,
                              const void* beta, Sparse* c, int compute, int algorithm, void* workspace) {
  const std::string words =
      about(*c) + of("n", a->columns) + of("compute", compute) + of("algorithm", algorithm);
  if (const int status = noted("cusparseSDDMM", handle, words)) return status;
  const int status = fits_dots(handle, first, second, alpha, a, b, beta, c, compute);
  if (status != 0) return status;
  if (!use(workspace) || !is_whole(*c)) return kInvalid;
  for (int64_t r = 0; r < c->rows; ++r)
    for (int64_t p = c->start(r); p < c->start(r + 1); ++p) {
      double sum = load(beta, 0, compute) * load(c->values, p, c->type);  // NaN where the caller left NaN
      for (int64_t j = 0; j < a->columns; ++j)
        sum += load(a->values, r * a->stride + j, a->type) *
               load(b->values, c->column(p) * b->stride + j, b->type);
      store(c->values, p, c->type, sum);
    }
  return 0;
}
