/* handwritten_library.c: a kernel library written by hand in plain C against opforge/abi.h.
 *
 * It holds one operator of each kind that a host must serve: a chain of gradients, two inputs of which one is
 * broadcast, optional and variadic inputs, several outputs, every kind of attribute, two index dtypes, an
 * output whose shape depends on data, use of the host's threads and scratch memory, a strided kernel, and
 * errors. Tests of the adapters and of the C ABI itself use it; nothing here comes from opforge's code
 * generator. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "opforge/abi.h"

static int64_t elements(const opforge_tensor* t) {
  int64_t n = 1;
  for (int32_t d = 0; d < t->ndim; ++d) n *= t->shape[d];
  return n;
}
static void* data(const opforge_tensor* t) { return (char*)t->data + t->byte_offset; }
static double get(const opforge_tensor* t, int64_t i) {
  return t->dtype.bits == 32 ? ((float*)data(t))[i] : ((double*)data(t))[i];
}
static void put(const opforge_tensor* t, int64_t i, double value) {
  if (t->dtype.bits == 32) {
    ((float*)data(t))[i] = (float)value;
  } else {
    ((double*)data(t))[i] = value;
  }
}
static int64_t get_index(const opforge_tensor* t, int64_t i) {
  return t->dtype.bits == 32 ? ((int32_t*)data(t))[i] : ((int64_t*)data(t))[i];
}
/* The tensor of an output parameter, or NULL where the caller does not want it. */
static const opforge_tensor* wanted(const opforge_arguments* outputs, int parameter) {
  int flat = 0;
  for (int p = 0; p < parameter; ++p) flat += outputs->counts[p];
  return outputs->counts[parameter] ? &outputs->tensors[flat] : NULL;
}

/* gelu(x) = x P(x), erf form; derivatives in closed form. */
static double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static double normal_pdf(double x) { return 0.39894228040143267794 * exp(-0.5 * x * x); }
static double gelu(double x) { return x * normal_cdf(x); }
static double gelu_1(double x) { return normal_cdf(x) + x * normal_pdf(x); }
static double gelu_2(double x) { return (2 - x * x) * normal_pdf(x); }

#define KERNEL(name)                                                                    \
  static opforge_status name(opforge_context* context, const opforge_arguments* inputs, \
                             const opforge_arguments* outputs, const opforge_attribute* attributes)
#define UNUSED (void)context, (void)inputs, (void)outputs, (void)attributes

KERNEL(run_gelu) {
  UNUSED;
  const opforge_tensor *x = &inputs->tensors[0], *y = &outputs->tensors[0];
  for (int64_t i = 0; i < elements(x); ++i) put(y, i, gelu(get(x, i)));
  return OPFORGE_STATUS_OK;
}

/* dy, x -> dx */
KERNEL(run_gelu_grad) {
  UNUSED;
  const opforge_tensor *dy = &inputs->tensors[0], *x = &inputs->tensors[1], *dx = &outputs->tensors[0];
  for (int64_t i = 0; i < elements(x); ++i) put(dx, i, get(dy, i) * gelu_1(get(x, i)));
  return OPFORGE_STATUS_OK;
}

/* ddx, dy, x -> gradient of dy, gradient of x */
KERNEL(run_gelu_grad_grad) {
  UNUSED;
  const opforge_tensor *ddx = &inputs->tensors[0], *dy = &inputs->tensors[1], *x = &inputs->tensors[2];
  const opforge_tensor *to_dy = wanted(outputs, 0), *to_x = wanted(outputs, 1);
  for (int64_t i = 0; i < elements(x); ++i) {
    if (to_dy) put(to_dy, i, get(ddx, i) * gelu_1(get(x, i)));
    if (to_x) put(to_x, i, get(ddx, i) * get(dy, i) * gelu_2(get(x, i)));
  }
  return OPFORGE_STATUS_OK;
}

/* a [m, n], b [n] -> a * b */
KERNEL(run_mul_rows) {
  UNUSED;
  const opforge_tensor *a = &inputs->tensors[0], *b = &inputs->tensors[1], *y = &outputs->tensors[0];
  const int64_t n = a->shape[1];
  for (int64_t i = 0; i < elements(a); ++i) put(y, i, get(a, i) * get(b, i % n));
  return OPFORGE_STATUS_OK;
}

KERNEL(run_mul_rows_grad) {
  UNUSED;
  const opforge_tensor *dy = &inputs->tensors[0], *a = &inputs->tensors[1], *b = &inputs->tensors[2];
  const opforge_tensor *da = wanted(outputs, 0), *db = wanted(outputs, 1);
  const int64_t m = a->shape[0], n = a->shape[1];
  if (da) {
    for (int64_t i = 0; i < m * n; ++i) put(da, i, get(dy, i) * get(b, i % n));
  }
  for (int64_t j = 0; db && j < n; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < m; ++i) sum += get(dy, i * n + j) * get(a, i * n + j);
    put(db, j, sum);
  }
  return OPFORGE_STATUS_OK;
}

/* dda [m, n], ddb [n], dy, a, b -> gradients of dy, a, b */
KERNEL(run_mul_rows_grad_grad) {
  UNUSED;
  const opforge_tensor *dda = &inputs->tensors[0], *ddb = &inputs->tensors[1], *dy = &inputs->tensors[2],
                       *a = &inputs->tensors[3], *b = &inputs->tensors[4];
  const opforge_tensor *to_dy = wanted(outputs, 0), *to_a = wanted(outputs, 1), *to_b = wanted(outputs, 2);
  const int64_t m = a->shape[0], n = a->shape[1];
  for (int64_t i = 0; i < m * n; ++i) {
    if (to_dy) put(to_dy, i, get(dda, i) * get(b, i % n) + get(ddb, i % n) * get(a, i));
    if (to_a) put(to_a, i, get(ddb, i % n) * get(dy, i));
  }
  for (int64_t j = 0; to_b && j < n; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < m; ++i) sum += get(dda, i * n + j) * get(dy, i * n + j);
    put(to_b, j, sum);
  }
  return OPFORGE_STATUS_OK;
}

/* x [m, n], bias? [n] -> x + bias; takes any strides */
KERNEL(run_add_bias) {
  UNUSED;
  const opforge_tensor *x = &inputs->tensors[0], *y = &outputs->tensors[0];
  const opforge_tensor* bias = inputs->counts[1] ? &inputs->tensors[1] : NULL;
  const int64_t m = x->shape[0], n = x->shape[1];
  const int64_t row = x->strides ? x->strides[0] : n, column = x->strides ? x->strides[1] : 1;
  const int64_t step = bias && bias->strides ? bias->strides[0] : 1;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      put(y, i * n + j, get(x, i * row + j * column) + (bias ? get(bias, j * step) : 0));
    }
  }
  return OPFORGE_STATUS_OK;
}

KERNEL(run_sum_rows) {
  UNUSED;
  const opforge_tensor *x = &inputs->tensors[0], *y = &outputs->tensors[0];
  const int64_t m = x->shape[0], n = x->shape[1];
  for (int64_t j = 0; j < n; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < m; ++i) sum += get(x, i * n + j);
    put(y, j, sum);
  }
  return OPFORGE_STATUS_OK;
}

/* *xs -> sum, largest */
KERNEL(run_total) {
  UNUSED;
  for (int64_t i = 0; i < elements(&outputs->tensors[0]); ++i) {
    double sum = 0, largest = get(&inputs->tensors[0], i);
    for (int32_t k = 0; k < inputs->counts[0]; ++k) {
      const double value = get(&inputs->tensors[k], i);
      sum += value;
      if (value > largest) largest = value;
    }
    put(&outputs->tensors[0], i, sum);
    put(&outputs->tensors[1], i, largest);
  }
  return OPFORGE_STATUS_OK;
}

/* *xs -> sum */
KERNEL(run_plus) {
  UNUSED;
  for (int64_t i = 0; i < elements(&outputs->tensors[0]); ++i) {
    double sum = 0;
    for (int32_t k = 0; k < inputs->counts[0]; ++k) sum += get(&inputs->tensors[k], i);
    put(&outputs->tensors[0], i, sum);
  }
  return OPFORGE_STATUS_OK;
}

/* dy, *xs -> *gradients of xs: as many as there are xs */
KERNEL(run_spread) {
  UNUSED;
  const opforge_tensor* dy = &inputs->tensors[0];
  for (int32_t k = 0; k < outputs->counts[0]; ++k) {
    for (int64_t i = 0; i < elements(dy); ++i) put(&outputs->tensors[k], i, get(dy, i));
  }
  return OPFORGE_STATUS_OK;
}

/* x [n], offset? [k] -> x + sum of offset */
KERNEL(run_add_offset) {
  UNUSED;
  const opforge_tensor *x = &inputs->tensors[0], *y = &outputs->tensors[0];
  double sum = 0;
  for (int64_t i = 0; inputs->counts[1] && i < elements(&inputs->tensors[1]); ++i)
    sum += get(&inputs->tensors[1], i);
  for (int64_t i = 0; i < elements(x); ++i) put(y, i, get(x, i) + sum);
  return OPFORGE_STATUS_OK;
}

/* dy [n], offset? [k] -> dx [n], gradient of offset? [k] */
KERNEL(run_add_offset_grad) {
  UNUSED;
  const opforge_tensor *dy = &inputs->tensors[0], *dx = wanted(outputs, 0), *to_offset = wanted(outputs, 1);
  double sum = 0;
  for (int64_t i = 0; i < elements(dy); ++i) {
    sum += get(dy, i);
    if (dx) put(dx, i, get(dy, i));
  }
  for (int64_t i = 0; to_offset && i < elements(to_offset); ++i) put(to_offset, i, sum);
  return OPFORGE_STATUS_OK;
}

/* One number per fact about the attributes, so that a test sees what arrived. */
KERNEL(run_attributes) {
  UNUSED;
  double* out = data(&outputs->tensors[0]);
  const opforge_attribute* a = attributes;
  int64_t k = 0;
  out[k++] = (double)a[0].value.i;
  out[k++] = a[1].value.f;
  out[k++] = (double)a[2].value.s.size;
  out[k++] = a[2].value.s.size ? (unsigned char)a[2].value.s.data[a[2].value.s.size - 1] : 0;
  out[k++] = (double)a[3].value.i;
  out[k++] = (double)a[4].count;
  double sum = 0;
  for (int64_t i = 0; i < a[4].count; ++i) sum += (double)(i + 1) * (double)a[4].value.ints[i];
  out[k++] = sum;
  out[k++] = (double)a[5].count;
  sum = 0;
  for (int64_t i = 0; i < a[5].count; ++i) sum += (double)(i + 1) * a[5].value.floats[i];
  out[k++] = sum;
  out[k++] = (double)a[6].count;
  sum = 0;
  for (int64_t i = 0; i < a[6].count; ++i) sum += (double)(i + 1) * (double)a[6].value.strings[i].size;
  out[k++] = sum;
  out[k++] = (double)a[7].count;
  sum = 0;
  for (int64_t i = 0; i < a[7].count; ++i) sum += (double)(i + 1) * (double)a[7].value.ints[i];
  out[k++] = sum;
  for (; k < 16; ++k) out[k] = (double)a[k % 8].kind;
  return OPFORGE_STATUS_OK;
}

/* values [n], indices [k] -> values[indices] */
KERNEL(run_take) {
  UNUSED;
  const opforge_tensor *values = &inputs->tensors[0], *indices = &inputs->tensors[1],
                       *out = &outputs->tensors[0];
  for (int64_t i = 0; i < elements(indices); ++i) {
    const int64_t index = get_index(indices, i);
    if (index < 0 || index >= values->shape[0]) {
      char text[128];
      snprintf(text, sizeof text, "indices[%lld] = %lld is out of range [0, %lld)", (long long)i,
               (long long)index, (long long)values->shape[0]);
      return context->error(context, OPFORGE_STATUS_INVALID_ARGUMENT, text);
    }
    put(out, i, get(values, index));
  }
  return OPFORGE_STATUS_OK;
}

/* x [n] -> indices of its nonzero elements */
KERNEL(run_nonzero) {
  UNUSED;
  const opforge_tensor* x = &inputs->tensors[0];
  int64_t count = 0;
  for (int64_t i = 0; i < x->shape[0]; ++i) count += get(x, i) != 0;
  const opforge_status status = context->allocate_output(context, 0, &count, 1);
  if (status != OPFORGE_STATUS_OK) return status;
  int64_t* out = data(&outputs->tensors[0]);
  for (int64_t i = 0; i < x->shape[0]; ++i) {
    if (get(x, i) != 0) *out++ = i;
  }
  return OPFORGE_STATUS_OK;
}

/* x [n] -> for each element the beginning of its chunk; checks scratch and nesting on the way */
typedef struct {
  opforge_context* context;
  double* scratch;
  int nested;
} chunk_work;
static void nested_chunk(void* user, int64_t begin, int64_t end) {
  /* where the outer loop was one chunk, a host may give the nested ones to several threads */
  if (end > begin) __atomic_fetch_add((int*)user, 1, __ATOMIC_RELAXED);
}
static void chunk(void* user, int64_t begin, int64_t end) {
  chunk_work* work = user;
  for (int64_t i = begin; i < end; ++i) work->scratch[i] = (double)begin;
  if (begin == 0) work->context->parallel_for(work->context, 10, 3, nested_chunk, &work->nested);
}
KERNEL(run_chunks) {
  UNUSED;
  const opforge_tensor *x = &inputs->tensors[0], *y = &outputs->tensors[0];
  const int64_t n = x->shape[0];
  chunk_work work = {context, context->scratch(context, sizeof(double) * (size_t)n, 64), 0};
  if (!work.scratch || (uintptr_t)work.scratch % 64) return OPFORGE_STATUS_OUT_OF_MEMORY;
  const opforge_status status = context->parallel_for(context, n, attributes[0].value.i, chunk, &work);
  if (status != OPFORGE_STATUS_OK) return status;
  if (n > 0 && work.nested != 4)
    return context->error(context, OPFORGE_STATUS_INTERNAL, "nested chunks are wrong");
  for (int64_t i = 0; i < n; ++i) put(y, i, work.scratch[i]);
  return OPFORGE_STATUS_OK;
}

/* Takes its time, so that a test can see other threads run. */
KERNEL(run_wait) {
  UNUSED;
  const int64_t ms = attributes[0].value.i;
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
  memcpy(data(&outputs->tensors[0]), data(&inputs->tensors[0]),
         (size_t)elements(&inputs->tensors[0]) * inputs->tensors[0].dtype.bits / 8);
  return OPFORGE_STATUS_OK;
}

/* ---- the table ---------------------------------------------------------------------------------------- */
static const opforge_dtype f32[] = {{OPFORGE_CODE_FLOAT, 32, 1}}, f64[] = {{OPFORGE_CODE_FLOAT, 64, 1}};
static const opforge_dtype f32_i32[] = {{OPFORGE_CODE_FLOAT, 32, 1}, {OPFORGE_CODE_INT, 32, 1}};
static const opforge_dtype f32_i64[] = {{OPFORGE_CODE_FLOAT, 32, 1}, {OPFORGE_CODE_INT, 64, 1}};
static const opforge_dtype f64_i32[] = {{OPFORGE_CODE_FLOAT, 64, 1}, {OPFORGE_CODE_INT, 32, 1}};
static const opforge_dtype f64_i64[] = {{OPFORGE_CODE_FLOAT, 64, 1}, {OPFORGE_CODE_INT, 64, 1}};

#define INSTANCE(id, kernel_flags, types, count, function)             \
  static const opforge_kernel id = {.size = sizeof(opforge_kernel),    \
                                    .abi = OPFORGE_ABI,                \
                                    .device_type = OPFORGE_DEVICE_CPU, \
                                    .flags = kernel_flags,             \
                                    .dtypes = types,                   \
                                    .n_dtypes = count,                 \
                                    .run = function};
/* Its addresses are multiples of a page, which no host gives by itself. */
KERNEL(run_paged) {
  UNUSED;
  const opforge_tensor *x = &inputs->tensors[0], *y = &outputs->tensors[0];
  if (((uintptr_t)data(x) | (uintptr_t)data(y)) % 4096 != 0) {
    return context->error(context, OPFORGE_STATUS_INTERNAL, "an address is no multiple of 4096");
  }
  for (int64_t i = 0; i < elements(x); ++i) put(y, i, 2 * get(x, i));
  return OPFORGE_STATUS_OK;
}
static const opforge_kernel k_paged_f32 = {.size = sizeof(opforge_kernel),
                                           .abi = OPFORGE_ABI,
                                           .device_type = OPFORGE_DEVICE_CPU,
                                           .flags = 0,
                                           .dtypes = f32,
                                           .n_dtypes = 1,
                                           .alignment = 4096,
                                           .run = run_paged};
static const opforge_kernel* const k_paged[] = {&k_paged_f32};

#define FLOATS(id, kernel_flags, function)           \
  INSTANCE(id##_f32, kernel_flags, f32, 1, function) \
  INSTANCE(id##_f64, kernel_flags, f64, 1, function) \
  static const opforge_kernel* const id[] = {&id##_f32, &id##_f64};

FLOATS(k_gelu, 0, run_gelu)
FLOATS(k_gelu_grad, 0, run_gelu_grad)
FLOATS(k_gelu_grad_grad, 0, run_gelu_grad_grad)
FLOATS(k_mul_rows, 0, run_mul_rows)
FLOATS(k_mul_rows_grad, 0, run_mul_rows_grad)
FLOATS(k_mul_rows_grad_grad, 0, run_mul_rows_grad_grad)
FLOATS(k_add_bias, OPFORGE_KERNEL_STRIDED, run_add_bias)
FLOATS(k_sum_rows, 0, run_sum_rows)
FLOATS(k_total, 0, run_total)
FLOATS(k_plus, 0, run_plus)
FLOATS(k_spread, 0, run_spread)
FLOATS(k_add_offset, 0, run_add_offset)
FLOATS(k_add_offset_grad, 0, run_add_offset_grad)
FLOATS(k_wrong_gradient, 0, run_mul_rows)
FLOATS(k_attributes, 0, run_attributes)
FLOATS(k_nonzero, 0, run_nonzero)
FLOATS(k_chunks, 0, run_chunks)
FLOATS(k_wait, 0, run_wait)
INSTANCE(k_take_1, 0, f32_i32, 2, run_take)
INSTANCE(k_take_2, 0, f32_i64, 2, run_take)
INSTANCE(k_take_3, 0, f64_i32, 2, run_take)
INSTANCE(k_take_4, 0, f64_i64, 2, run_take)
static const opforge_kernel* const k_take[] = {&k_take_1, &k_take_2, &k_take_3, &k_take_4};

#define PLAIN (OPFORGE_OPERATOR_PURE | OPFORGE_OPERATOR_DETERMINISTIC)
#define GRADIENT (PLAIN | OPFORGE_OPERATOR_GRADIENT)
#define FLOAT_TYPES "T: f32 f64"
#define OPERATOR(id, operator_name, operator_flags, operator_signature, operator_types, rule, program) \
  static const opforge_operator o_##id = {                                                             \
      .size = sizeof(opforge_operator),                                                                \
      .abi = OPFORGE_ABI,                                                                              \
      .domain = "test.hand",                                                                           \
      .name = operator_name,                                                                           \
      .since_version = 1,                                                                              \
      .flags = (operator_flags) | (sizeof(program) > 1 ? OPFORGE_OPERATOR_DIFFERENTIABLE : 0u),        \
      .signature = operator_signature,                                                                 \
      .types = operator_types,                                                                         \
      .autocast = rule,                                                                                \
      .gradient = program,                                                                             \
      .schema_hash = "handwritten",                                                                    \
      .kernels = k_##id,                                                                               \
      .n_kernels = sizeof(k_##id) / sizeof(k_##id[0])};

OPERATOR(gelu, "Gelu", PLAIN, "(x: T[*S]) -> (y: T[*S])", FLOAT_TYPES, "promote",
         "test.hand::GeluGrad:1(g0, i0) -> v0; return v0")
OPERATOR(gelu_grad, "GeluGrad", GRADIENT, "(grad_y: T[*S], x: T[*S]) -> (grad_x: T[*S])", FLOAT_TYPES,
         "promote", "test.hand::GeluGradGrad:1(g0, i0, i1) -> v0, v1; return v0, v1")
OPERATOR(gelu_grad_grad, "GeluGradGrad", GRADIENT,
         "(grad_grad_x: T[*S], grad_y: T[*S], x: T[*S]) -> (to_grad_y: T[*S], to_x: T[*S])", FLOAT_TYPES,
         "promote", "")
OPERATOR(mul_rows, "MulRows", PLAIN, "(a: T[m, n], b: T[n]) -> (y: T[m, n])", FLOAT_TYPES, "f32",
         "test.hand::MulRowsGrad:1(g0, i0, i1) -> v0, v1; return v0, v1")
OPERATOR(mul_rows_grad, "MulRowsGrad", GRADIENT,
         "(grad_y: T[m, n], a: T[m, n], b: T[n]) -> (grad_a: T[m, n], grad_b: T[n])", FLOAT_TYPES, "promote",
         "test.hand::MulRowsGradGrad:1(g0, g1, i0, i1, i2) -> v0, v1, v2; return v0, v1, v2")
OPERATOR(mul_rows_grad_grad, "MulRowsGradGrad", GRADIENT,
         "(dda: T[m, n], ddb: T[n], grad_y: T[m, n], a: T[m, n], b: T[n]) -> "
         "(to_grad_y: T[m, n], to_a: T[m, n], to_b: T[n])",
         FLOAT_TYPES, "promote", "")
OPERATOR(add_bias, "AddBias", PLAIN, "(x: T[m, n], bias?: T[n]) -> (y: T[m, n])", FLOAT_TYPES, "promote",
         "test.hand::SumRows:1(g0) -> v0; return g0, v0")
OPERATOR(sum_rows, "SumRows", PLAIN, "(x: T[m, n]) -> (y: T[n])", FLOAT_TYPES, "promote", "")
OPERATOR(total, "Total", PLAIN, "(*xs: T[*S]) -> (sum: T[*S], largest: T[*S])", FLOAT_TYPES, "promote", "")
OPERATOR(plus, "Plus", PLAIN, "(*xs: T[*S]) -> (sum: T[*S])", FLOAT_TYPES, "promote",
         "test.hand::Spread:1(g0, i0) -> v0; return v0")
OPERATOR(spread, "Spread", GRADIENT, "(grad_y: T[*S], *xs: T[*S]) -> (*grads: T[*S])", FLOAT_TYPES, "promote",
         "test.hand::Plus:1(g0) -> v0; return v0, -")
OPERATOR(add_offset, "AddOffset", PLAIN, "(x: T[n], offset?: T[k]) -> (y: T[n])", FLOAT_TYPES, "promote",
         "test.hand::AddOffsetGrad:1(g0, i1) -> v0, v1; return v0, v1")
OPERATOR(add_offset_grad, "AddOffsetGrad", GRADIENT,
         "(grad_y: T[n], offset?: T[k]) -> (grad_x: T[n], grad_offset?: T[k])", FLOAT_TYPES, "promote", "")
OPERATOR(wrong_gradient, "WrongGradient", PLAIN, "(a: T[m, n], b: T[n]) -> (y: T[m, n])", FLOAT_TYPES,
         "promote", "return g0, g0")
OPERATOR(
    attributes, "Attributes", PLAIN,
    "(x: T[*S]; i: int = 3, f: float = 0.1, s: string = \"12345\", b: bool = true, li: ints = [1, 2], "
    "lf: floats = [], ls: strings = [\"a\", \"\\u00e9\"], lb: bools = [true, false]) -> (facts: f64[16])",
    FLOAT_TYPES, "none", "")
OPERATOR(take, "Take", PLAIN, "(values: T[n], indices: I[k]) -> (out: T[k])", "T: f32 f64; I: i32 i64",
         "promote", "")
OPERATOR(nonzero, "Nonzero", PLAIN, "(x: T[n]) -> (indices: i64[_])", FLOAT_TYPES, "promote", "")
OPERATOR(chunks, "Chunks", PLAIN, "(x: T[n]; grain: int = 7) -> (begins: T[n])", FLOAT_TYPES, "promote", "")
OPERATOR(paged, "Paged", PLAIN, "(x: T[*S]) -> (y: T[*S])", "T: f32", "promote", "")
OPERATOR(wait, "Wait", PLAIN, "(x: T[*S]; milliseconds: int = 100) -> (y: T[*S])", FLOAT_TYPES, "promote", "")

static const opforge_operator* const operators[] = {
    &o_gelu,           &o_gelu_grad, &o_gelu_grad_grad, &o_mul_rows, &o_mul_rows_grad, &o_mul_rows_grad_grad,
    &o_add_bias,       &o_sum_rows,  &o_plus,           &o_spread,   &o_add_offset,    &o_add_offset_grad,
    &o_wrong_gradient, &o_total,     &o_attributes,     &o_take,     &o_nonzero,       &o_chunks,
    &o_paged,          &o_wait};
static const opforge_library library = {.size = sizeof(opforge_library),
                                        .abi = OPFORGE_ABI,
                                        .id = "handwritten",
                                        .version = "1.0",
                                        .content_hash = "handwritten",
                                        .build = "plain C",
                                        .operators = operators,
                                        .n_operators = sizeof(operators) / sizeof(operators[0])};

const opforge_library* opforge_library_v1(const opforge_host* host) {
  if (host->abi != OPFORGE_ABI) {
    if (host->reason)
      snprintf(host->reason, host->reason_size, "built for ABI %u, the host speaks %u", OPFORGE_ABI,
               host->abi);
    return NULL;
  }
  return &library;
}
