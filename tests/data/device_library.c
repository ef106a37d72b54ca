/* device_library.c: a kernel library of one operator, for the CPU or (-DDEVICE=2) for "CUDA", whose kernel
 * notes what the host gave it and computes y = 2x in memory of the host. Tests of hosts read the notes. */
#include <stddef.h>

#include "opforge/abi.h"

#ifndef DEVICE
#define DEVICE OPFORGE_DEVICE_CPU
#endif

typedef struct notes {
  int64_t calls;
  void* stream;
  int64_t context_type, context_device, input_type, input_device, output_type, output_device;
  void *scratch, *aligned_scratch;
  int64_t fail; /* set by the test: the status of the next call */
} notes;
OPFORGE_EXPORT notes opforge_test_notes;

static opforge_status run_double(opforge_context* context, const opforge_arguments* inputs,
                                 const opforge_arguments* outputs, const opforge_attribute* attributes) {
  (void)attributes;
  const opforge_tensor *x = &inputs->tensors[0], *y = &outputs->tensors[0];
  notes* const to = &opforge_test_notes;
  ++to->calls;
  to->stream = context->stream;
  to->context_type = context->device.type;
  to->context_device = context->device.id;
  to->input_type = x->device.type;
  to->input_device = x->device.id;
  to->output_type = y->device.type;
  to->output_device = y->device.id;
  if (to->fail != 0) return context->error(context, (opforge_status)to->fail, "the test's failure");
  to->scratch = context->scratch(context, 1000, 16);
  to->aligned_scratch = context->scratch(context, 64, 4096);
  if (to->scratch == NULL || to->aligned_scratch == NULL) {
    return context->error(context, OPFORGE_STATUS_OUT_OF_MEMORY, "no memory on the GPU");
  }
  for (int k = 0; k < 1000; ++k) ((char*)to->scratch)[k] = 1;
  for (int k = 0; k < 64; ++k) ((char*)to->aligned_scratch)[k] = 1;
  int64_t n = 1;
  for (int32_t d = 0; d < x->ndim; ++d) n *= x->shape[d];
  for (int64_t i = 0; i < n; ++i) ((float*)y->data)[i] = 2 * ((const float*)x->data)[i];
  return OPFORGE_STATUS_OK;
}

static const opforge_dtype kF32[] = {{OPFORGE_CODE_FLOAT, 32, 1}};
static const opforge_kernel kKernel = {
    .size = sizeof(opforge_kernel),
    .device_type = DEVICE,
    .dtypes = kF32,
    .n_dtypes = 1,
    .run = &run_double,
};
static const opforge_kernel* const kKernels[] = {&kKernel};
static const opforge_operator kOperator = {
    .size = sizeof(opforge_operator),
    .domain = "test.device",
    .name = "Double",
    .since_version = 1,
    .flags = OPFORGE_OPERATOR_PURE | OPFORGE_OPERATOR_DETERMINISTIC,
    .signature = "(x: T[*S]) -> (y: T[*S])",
    .types = "T: f32",
    .autocast = "promote",
    .gradient = "",
    .schema_hash = "9d0ab7c2",
    .kernels = kKernels,
    .n_kernels = 1,
};
static const opforge_operator* const kOperators[] = {&kOperator};
static const opforge_library kLibrary = {
    .size = sizeof(opforge_library),
    .id = "device",
    .version = "1",
    .content_hash = "device",
    .build = "by a test",
    .operators = kOperators,
    .n_operators = 1,
};

const opforge_library* opforge_library_v1(const opforge_host* host) {
  (void)host;
  return &kLibrary;
}
