/* plain_c_host.c: the smallest host, in plain C: opens a kernel library, reads its table, runs operators.
 * Usage: plain_c_host LIBRARY. Exits 0 and prints "all right", or says what went wrong. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opforge/abi.h"

static char last_error[256];
static int64_t allocated[8];
static opforge_arguments* current_outputs;

static opforge_status parallel_for(opforge_context* context, int64_t n, int64_t grain, opforge_range_fn body,
                                   void* user) {
  (void)context;
  if (grain < 1) grain = 1;
  for (int64_t begin = 0; begin < n; begin += grain) body(user, begin, n - begin < grain ? n : begin + grain);
  return OPFORGE_STATUS_OK;
}
static void* scratch(opforge_context* context, size_t bytes, size_t alignment) {
  (void)context;
  return aligned_alloc(alignment,
                       (bytes + alignment - 1) / alignment * alignment); /* freed with the process */
}
static opforge_status error(opforge_context* context, opforge_status code, const char* text) {
  (void)context;
  snprintf(last_error, sizeof last_error, "%s", text);
  return code;
}
static opforge_status allocate_output(opforge_context* context, int32_t index, const int64_t* shape,
                                      int32_t ndim) {
  (void)context;
  if (index != 0 || ndim != 1) return OPFORGE_STATUS_INTERNAL;
  allocated[0] = shape[0];
  current_outputs->tensors[0].shape = allocated;
  current_outputs->tensors[0].ndim = 1;
  current_outputs->tensors[0].data = malloc((size_t)(shape[0] ? shape[0] : 1) * 8);
  return OPFORGE_STATUS_OK;
}
static void log_text(opforge_context* context, int32_t level, const char* text) {
  (void)context;
  fprintf(stderr, "%d: %s\n", level, text);
}

static const opforge_operator* find(const opforge_library* library, const char* name) {
  for (int32_t i = 0; i < library->n_operators; ++i) {
    if (!strcmp(library->operators[i]->name, name)) return library->operators[i];
  }
  printf("no operator %s\n", name);
  exit(1);
}

static opforge_status run(const opforge_operator* op, int kernel, opforge_arguments* in,
                          opforge_arguments* out, const opforge_attribute* attributes) {
  opforge_context context = {.size = sizeof context,
                             .abi = OPFORGE_ABI,
                             .device = {OPFORGE_DEVICE_CPU, 0},
                             .kernel_data = op->kernels[kernel]->data,
                             .parallel_for = parallel_for,
                             .scratch = scratch,
                             .allocate_output = allocate_output,
                             .error = error,
                             .log = log_text};
  current_outputs = out;
  last_error[0] = 0;
  return op->kernels[kernel]->run(&context, in, out, attributes);
}

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      printf("line %d: %s (%s)\n", __LINE__, #condition, last_error); \
      return 1;                                                       \
    }                                                                 \
  } while (0)

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  void* handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    printf("%s\n", dlerror());
    return 1;
  }
  opforge_library_fn entry;
  *(void**)&entry = dlsym(handle, "opforge_library_v1");
  CHECK(entry != NULL);

  /* A host of another ABI is refused with a reason. */
  char reason[128] = "";
  opforge_host host = {.size = sizeof host,
                       .abi = 99,
                       .name = "plain C",
                       .version = "1",
                       .reason = reason,
                       .reason_size = sizeof reason};
  CHECK(entry(&host) == NULL && strstr(reason, "99") != NULL);
  host.abi = OPFORGE_ABI;
  const opforge_library* library = entry(&host);
  CHECK(library != NULL && library->abi == OPFORGE_ABI && library->size >= sizeof *library);

  const opforge_dtype f32 = {OPFORGE_CODE_FLOAT, 32, 1}, i64 = {OPFORGE_CODE_INT, 64, 1};
  const opforge_device cpu = {OPFORGE_DEVICE_CPU, 0};
  float x[4] = {-1, 0, 1, 2}, y[4] = {0}, z[4] = {0};
  int64_t shape[1] = {4};
  int32_t one[1] = {1};

  /* NULL strides, a byte offset, a result. */
  opforge_tensor in[2] = {{x, cpu, 1, f32, shape, NULL, 0}}, out[2] = {{y, cpu, 1, f32, shape, NULL, 0}};
  opforge_arguments inputs = {in, one, 1, 1}, outputs = {out, one, 1, 1};
  const opforge_operator* gelu = find(library, "Gelu");
  CHECK(gelu->kernels[0]->n_dtypes == 1 && gelu->kernels[0]->dtypes[0].bits == 32);
  CHECK(run(gelu, 0, &inputs, &outputs, NULL) == OPFORGE_STATUS_OK);
  for (int i = 0; i < 4; ++i) CHECK(fabs(y[i] - 0.5 * x[i] * erfc(-x[i] / sqrt(2.0))) < 1e-6);
  int64_t two[1] = {2};
  in[0].shape = out[0].shape = two;
  in[0].byte_offset = 2 * sizeof(float);
  CHECK(run(gelu, 0, &inputs, &outputs, NULL) == OPFORGE_STATUS_OK && fabs(y[1] - 1.9544997f) < 1e-6);
  in[0].byte_offset = 0;

  /* Zero size with NULL data. */
  int64_t none[1] = {0};
  in[0].shape = out[0].shape = none;
  in[0].data = out[0].data = NULL;
  CHECK(run(gelu, 0, &inputs, &outputs, NULL) == OPFORGE_STATUS_OK);

  /* A variadic input and two outputs, of which the caller wants one. */
  opforge_tensor many[3] = {
      {x, cpu, 1, f32, shape, NULL, 0}, {x, cpu, 1, f32, shape, NULL, 0}, {x, cpu, 1, f32, shape, NULL, 0}};
  int32_t three[1] = {3}, both[2] = {1, 1};
  opforge_tensor results[2] = {{y, cpu, 1, f32, shape, NULL, 0}, {z, cpu, 1, f32, shape, NULL, 0}};
  opforge_arguments xs = {many, three, 3, 1}, sums = {results, both, 2, 2};
  CHECK(run(find(library, "Total"), 0, &xs, &sums, NULL) == OPFORGE_STATUS_OK && y[3] == 6 && z[3] == 2);

  opforge_tensor grads[3] = {
      {x, cpu, 1, f32, shape, NULL, 0}, {x, cpu, 1, f32, shape, NULL, 0}, {x, cpu, 1, f32, shape, NULL, 0}};
  int32_t each[3] = {1, 1, 1}, second[2] = {0, 1};
  opforge_arguments ddx = {grads, each, 3, 3}, only = {results, second, 1, 2};
  CHECK(run(find(library, "GeluGradGrad"), 0, &ddx, &only, NULL) == OPFORGE_STATUS_OK);

  /* Threads and scratch. */
  int64_t wide[1] = {20};
  float ones[20] = {0}, begins[20];
  opforge_tensor long_in = {ones, cpu, 1, f32, wide, NULL, 0},
                 long_out = {begins, cpu, 1, f32, wide, NULL, 0};
  opforge_arguments chunks_in = {&long_in, one, 1, 1}, chunks_out = {&long_out, one, 1, 1};
  const opforge_attribute grain = {OPFORGE_ATTRIBUTE_INT, 0, 1, {.i = 7}};
  CHECK(run(find(library, "Chunks"), 0, &chunks_in, &chunks_out, &grain) == OPFORGE_STATUS_OK);
  CHECK(begins[6] == 0 && begins[7] == 7 && begins[19] == 14);

  /* An output whose shape depends on data. */
  opforge_tensor found = {NULL, cpu, 0, i64, NULL, NULL, 0};
  in[0].data = x;
  in[0].shape = shape;
  opforge_arguments dynamic = {&found, one, 1, 1};
  CHECK(run(find(library, "Nonzero"), 0, &inputs, &dynamic, NULL) == OPFORGE_STATUS_OK);
  CHECK(found.shape[0] == 3 && ((int64_t*)found.data)[0] == 0 && ((int64_t*)found.data)[2] == 3);

  /* A value that the kernel refuses: a status and a text. */
  int64_t index[1] = {9};
  int64_t single[1] = {1};
  in[1] = (opforge_tensor){index, cpu, 1, i64, single, NULL, 0};
  int32_t pair[2] = {1, 1};
  opforge_arguments taken = {in, pair, 2, 2};
  out[0] = (opforge_tensor){y, cpu, 1, f32, single, NULL, 0};
  CHECK(run(find(library, "Take"), 1, &taken, &outputs, NULL) == OPFORGE_STATUS_INVALID_ARGUMENT);
  CHECK(strstr(last_error, "indices[0] = 9 is out of range [0, 4)") != NULL);
  printf("all right\n");
  return 0;
}
