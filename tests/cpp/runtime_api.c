/* runtime_api.c: the runtime from plain C: open a model, look at it, run it with own and with given memory.
 * tests/unit/bin/test_c_api.py compiles it and gives it models. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opforge/runtime.h"

static int failures = 0;

static void expect(int good, const char* what) {
  if (good) return;
  printf("failed: %s\n  %s\n", what, opforge_last_error()->text);
  ++failures;
}

static void add_one(void* user, int64_t begin, int64_t end) {
  int64_t k;
  for (k = begin; k < end; ++k) ((int*)user)[k] += 1;
}

static void* from_pool(void* user, int32_t index, int32_t onnx_dtype, const int64_t* shape, int32_t ndim,
                       size_t bytes) {
  expect(index == 0 && onnx_dtype == 1 && ndim == 2 && shape[0] == 4 && shape[1] == 3 && bytes == 48,
         "the allocator sees the output");
  return user;
}

static void check_run(opforge_session* session) {
  float data[12], given[12];
  int64_t shape[2] = {3, 4}, turned[2] = {4, 3};
  const char* names[1] = {"x"};
  const char* output_names[1] = {"y"};
  opforge_tensor input, output;
  opforge_run run;
  int k;
  for (k = 0; k < 12; ++k) data[k] = (float)k;
  memset(&input, 0, sizeof input);
  memset(&output, 0, sizeof output);
  memset(&run, 0, sizeof run);
  input.data = data;
  input.device.type = OPFORGE_DEVICE_CPU;
  input.ndim = 2;
  input.dtype = opforge_session_input(session, 0)->dtype;
  input.shape = shape;
  run.size = sizeof run;
  run.inputs = &input;
  run.n_inputs = 1;
  run.outputs = &output;
  run.n_outputs = 1;

  expect(opforge_session_run(session, &run) == OPFORGE_STATUS_OK, "a run that allocates");
  expect(output.ndim == 2 && output.shape[0] == 4 && output.shape[1] == 3, "its shape");
  expect(((float*)output.data)[1] == 4.0f, "its values");
  opforge_free(output.data);

  run.input_names = names;
  run.output_names = output_names;
  output.data = given;
  output.shape = turned;
  expect(opforge_session_run(session, &run) == OPFORGE_STATUS_OK, "a run into a given buffer");
  expect(given[1] == 4.0f && given[11] == 11.0f, "its values");

  output.data = NULL;
  run.allocate = from_pool;
  run.allocate_user = given;
  expect(opforge_session_run(session, &run) == OPFORGE_STATUS_OK && output.data == given,
         "a run with an allocator");
  run.allocate = NULL;

  output.data = given;
  output.shape = shape;
  expect(opforge_session_run(session, &run) == OPFORGE_STATUS_INVALID_ARGUMENT, "a buffer that does not fit");
  expect(strstr(opforge_last_error()->text,
                "output 'y': the buffer of an output does not fit\n  expected: f32[4,3]\n  got: f32[3,4]") !=
             NULL,
         "its message");
  names[0] = "z";
  expect(opforge_session_run(session, &run) == OPFORGE_STATUS_INVALID_ARGUMENT, "a wrong name");
  expect(strcmp(opforge_last_error()->what, "there is no such input") == 0 &&
             strcmp(opforge_last_error()->expected, "'x'") == 0,
         "its message");
  names[0] = "x";
  input.dtype.bits = 64;
  expect(opforge_session_run(session, &run) == OPFORGE_STATUS_TYPE, "a wrong dtype");
  input.dtype.bits = 32;
  input.data = NULL;
  expect(opforge_session_run(session, &run) == OPFORGE_STATUS_INVALID_ARGUMENT, "an input without data");
  input.data = data;
  names[0] = "x";
  output.shape = turned;
  run.size = sizeof run + 64;
  expect(opforge_session_run(session, &run) == OPFORGE_STATUS_OK, "a run of a newer caller");
  run.size = sizeof run - 1;
  expect(opforge_session_run(session, &run) == OPFORGE_STATUS_INVALID_ARGUMENT, "a run that lacks a field");
  run.size = 3;
  expect(opforge_session_run(session, &run) == OPFORGE_STATUS_INVALID_ARGUMENT, "a run without its size");
}

int main(int argc, char** argv) {
  opforge_session* session = NULL;
  opforge_session_options options;
  opforge_session_statistics statistics;
  const char *key, *value;
  int counts[100], k;
  if (argc != 2) return 2;
  memset(&options, 0, sizeof options);
  expect(opforge_session_open(argv[1], &options, &session) == OPFORGE_STATUS_INVALID_ARGUMENT &&
             session == NULL &&
             strcmp(opforge_last_error()->what, "opforge_session_options.size is not set") == 0,
         "options without their size");
  options.size = sizeof options;
  options.threads = 2;
  options.verify = OPFORGE_VERIFY_FULL;
  expect(opforge_session_open(argv[1], &options, &session) == OPFORGE_STATUS_OK, "open");
  if (session == NULL) return 1;
  expect(opforge_session_input_count(session) == 1 && opforge_session_output_count(session) == 1, "counts");
  expect(strcmp(opforge_session_input(session, 0)->name, "x") == 0, "name of the input");
  expect(strcmp(opforge_session_input(session, 0)->dimensions[0], "N") == 0 &&
             opforge_session_input(session, 0)->shape[0] == -1,
         "a symbol");
  expect(opforge_session_input(session, 1) == NULL && opforge_session_output(session, -1) == NULL,
         "an index out of range");
  expect(opforge_session_metadata_count(session) == 1, "metadata");
  expect(opforge_session_metadata(session, 0, &key, &value) == OPFORGE_STATUS_OK && strcmp(key, "tool") == 0,
         "a key");
  expect(opforge_session_metadata(session, 1, &key, &value) == OPFORGE_STATUS_INVALID_ARGUMENT,
         "a key out of range");
  check_run(session);
  statistics.size = sizeof statistics;
  expect(opforge_session_get_statistics(session, &statistics) == OPFORGE_STATUS_OK && statistics.plans == 1,
         "statistics");
  opforge_session_close(session);
  opforge_session_close(NULL);

  expect(
      opforge_session_open("/nonexistent.bin", NULL, &session) == OPFORGE_STATUS_NOT_FOUND && session == NULL,
      "no file");
  expect(opforge_session_open_memory("x", 1, NULL, &session) == OPFORGE_STATUS_CORRUPT, "no bin");
  memset(counts, 0, sizeof counts);
  opforge_parallel_for(100, 7, add_one, counts, 0);
  for (k = 0; k < 100; ++k) expect(counts[k] == 1, "every index once");
  expect(opforge_crc32c(0, "123456789", 9) == 0xE3069283u, "the checksum");
  expect(
      opforge_thread_count() >= 1 && opforge_runtime_version()[0] != '\0' && opforge_runtime_isa()[0] != '\0',
      "facts");
  if (failures == 0) printf("good\n");
  return failures != 0;
}
