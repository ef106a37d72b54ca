/* runtime_values.c: sequences, optionals and limits through the C API, in plain C. Arguments: a model that
 * appends x to the sequence s and passes the optional o on, one that loops for ever and appends, and one that
 * joins two vectors of strings. */
#include <stdio.h>
#include <string.h>

#include "opforge/runtime.h"

static int failed(int line) {
  printf("line %d: %s\n", line, opforge_last_error()->text);
  return 1;
}

#define REQUIRE(condition) \
  if (!(condition)) return failed(__LINE__)

static opforge_tensor vector(float* data, int64_t* shape) {
  opforge_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.device.type = OPFORGE_DEVICE_CPU;
  tensor.ndim = 1;
  tensor.dtype.code = OPFORGE_CODE_FLOAT;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  return tensor;
}

static int values(const char* path) {
  float a[2] = {1, 2}, x[3] = {3, 4, 5};
  int64_t two = 2, three = 3;
  opforge_session* session = NULL;
  opforge_results* results = NULL;
  opforge_value inputs[3], output;
  opforge_tensor item = vector(a, &two), last = vector(x, &three), none;
  opforge_run run;
  REQUIRE(opforge_session_open(path, NULL, &session) == OPFORGE_STATUS_OK);
  REQUIRE(opforge_session_input(session, 0)->kind == OPFORGE_VALUE_SEQUENCE);
  REQUIRE(opforge_session_input(session, 1)->kind == OPFORGE_VALUE_TENSOR);
  REQUIRE(opforge_session_input(session, 2)->kind == OPFORGE_VALUE_OPTIONAL);
  memset(inputs, 0, sizeof inputs);
  inputs[0].tensors = &item;
  inputs[0].count = 1;
  inputs[1].tensors = &last;
  inputs[1].count = 1;
  inputs[2].count = -1;
  REQUIRE(opforge_session_run_values(session, inputs, 3, &results) == OPFORGE_STATUS_OK);
  REQUIRE(opforge_results_value(results, 0, &output) == OPFORGE_STATUS_OK);
  REQUIRE(output.count == 2 && output.tensors[0].shape[0] == 2 && output.tensors[1].shape[0] == 3);
  REQUIRE(((const float*)output.tensors[1].data)[2] == 5);
  REQUIRE(opforge_results_value(results, 1, &output) == OPFORGE_STATUS_OK && output.count == -1);
  REQUIRE(opforge_results_value(results, 2, &output) == OPFORGE_STATUS_INVALID_ARGUMENT);
  opforge_results_free(results);
  opforge_results_free(NULL);
  inputs[1].count = 0;
  REQUIRE(opforge_session_run_values(session, inputs, 3, &results) == OPFORGE_STATUS_INVALID_ARGUMENT);
  REQUIRE(strcmp(opforge_last_error()->expected, "a tensor") == 0 && results == NULL);
  REQUIRE(opforge_session_run_values(session, inputs, 2, &results) == OPFORGE_STATUS_INVALID_ARGUMENT);
  memset(&run, 0, sizeof run);
  memset(&none, 0, sizeof none);
  run.size = sizeof run;
  REQUIRE(opforge_session_run(session, &run) == OPFORGE_STATUS_UNSUPPORTED);
  REQUIRE(strcmp(opforge_last_error()->hint, "use opforge_session_run_values") == 0);
  REQUIRE(opforge_session_prepare(session, &none, 1) == OPFORGE_STATUS_UNSUPPORTED);
  opforge_session_close(session);
  return 0;
}

static int limits(const char* path) {
  float x[1024];
  int64_t size = 1024;
  opforge_tensor input = vector(x, &size), output;
  opforge_session_options options;
  opforge_session* session = NULL;
  opforge_run run;
  memset(x, 0, sizeof x);
  memset(&options, 0, sizeof options);
  memset(&run, 0, sizeof run);
  options.size = sizeof options;
  options.loop_limit = 50;
  run.size = sizeof run;
  run.inputs = &input;
  run.outputs = &output;
  run.n_inputs = run.n_outputs = 1;
  REQUIRE(opforge_session_open(path, &options, &session) == OPFORGE_STATUS_OK);
  memset(&output, 0, sizeof output);
  REQUIRE(opforge_session_run(session, &run) == OPFORGE_STATUS_UNSUPPORTED);
  REQUIRE(strcmp(opforge_last_error()->what, "a Loop runs more often than the session allows") == 0);
  REQUIRE(strcmp(opforge_last_error()->expected, "at most 50 iterations") == 0);
  opforge_session_close(session);
  options.loop_limit = 0;
  options.memory_limit = 1 << 20; /* each tensor has 8 KiB */
  REQUIRE(opforge_session_open(path, &options, &session) == OPFORGE_STATUS_OK);
  REQUIRE(opforge_session_run(session, &run) == OPFORGE_STATUS_OUT_OF_MEMORY);
  REQUIRE(strstr(opforge_last_error()->what, "take more memory than the session allows") != NULL);
  opforge_session_close(session);
  return 0;
}

static int strings(const char* path) {
  static const char kBroken[] = {(char)0xC3};
  opforge_string a[2] = {{"a", 1}, {"zero\0inside", 11}}, b[2] = {{NULL, 0}, {"\xC3\xA9", 2}};
  int64_t two = 2;
  opforge_session* session = NULL;
  opforge_results* results = NULL;
  opforge_tensor left = vector(NULL, &two), right;
  opforge_value inputs[2], output;
  opforge_run run;
  const opforge_string* texts;
  left.data = a;
  left.dtype.code = OPFORGE_CODE_STRING;
  left.dtype.bits = 128;
  right = left;
  right.data = b;
  REQUIRE(opforge_session_open(path, NULL, &session) == OPFORGE_STATUS_OK);
  REQUIRE(opforge_session_input(session, 0)->dtype.code == OPFORGE_CODE_STRING);
  REQUIRE(opforge_session_input(session, 0)->onnx_dtype == 8);
  memset(inputs, 0, sizeof inputs);
  inputs[0].tensors = &left;
  inputs[1].tensors = &right;
  inputs[0].count = inputs[1].count = 1;
  REQUIRE(opforge_session_run_values(session, inputs, 2, &results) == OPFORGE_STATUS_OK);
  REQUIRE(opforge_results_value(results, 0, &output) == OPFORGE_STATUS_OK && output.count == 1);
  REQUIRE(output.tensors[0].dtype.code == OPFORGE_CODE_STRING && output.tensors[0].dtype.bits == 128);
  texts = (const opforge_string*)output.tensors[0].data;
  REQUIRE(texts[0].size == 1 && strcmp(texts[0].data, "a") == 0);
  REQUIRE(texts[1].size == 13 && memcmp(texts[1].data, "zero\0inside\xC3\xA9", 14) == 0);
  opforge_results_free(results);
  b[1].data = kBroken;
  b[1].size = 1;
  REQUIRE(opforge_session_run_values(session, inputs, 2, &results) == OPFORGE_STATUS_INVALID_ARGUMENT);
  REQUIRE(strcmp(opforge_last_error()->where, "input 'b', element 1") == 0 && results == NULL);
  b[1].size = -1;
  REQUIRE(opforge_session_run_values(session, inputs, 2, &results) == OPFORGE_STATUS_INVALID_ARGUMENT);
  memset(&run, 0, sizeof run);
  run.size = sizeof run;
  REQUIRE(opforge_session_run(session, &run) == OPFORGE_STATUS_UNSUPPORTED);
  REQUIRE(strcmp(opforge_last_error()->hint, "use opforge_session_run_values") == 0);
  opforge_session_close(session);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 4 || values(argv[1]) != 0 || limits(argv[2]) != 0 || strings(argv[3]) != 0) return 1;
  puts("good");
  return 0;
}
