/* runtime_absent.c: whatever a caller of the C API leaves NULL, or sets to what means nothing, is an error
 * with words and never a crash. tests/unit/bin/test_c_api.py compiles it and gives it a model of one input,
 * f32[N,4]. */
#include <stdio.h>
#include <string.h>

#include "opforge/runtime.h"

static int failures = 0;

static void refused(opforge_status status, const char* words) {
  const char* text = status == OPFORGE_STATUS_OK ? "(no error)" : opforge_last_error()->text;
  if (status == OPFORGE_STATUS_INVALID_ARGUMENT && strstr(text, words) != NULL) return;
  printf("failed: \"%s\" was expected, got status %d, %s\n", words, (int)status, text);
  ++failures;
}

static void expect(int good, const char* what) {
  if (good) return;
  printf("failed: %s\n", what);
  ++failures;
}

static void options(const char* path) {
  opforge_session* session = NULL;
  opforge_session_options all, o;
  const char* none[1] = {NULL};
  memset(&all, 0, sizeof all);
  all.size = sizeof all;

  refused(opforge_session_open(NULL, NULL, &session), "path is NULL");
  refused(opforge_session_open(path, NULL, NULL), "session is NULL");
  refused(opforge_session_open_memory(NULL, 64, NULL, &session), "bytes is NULL");
  o = all, o.verify = 7;
  refused(opforge_session_open(path, &o, &session), "expected: OPFORGE_VERIFY_LAZY or OPFORGE_VERIFY_FULL");
  o = all, o.memory_limit = -5;
  refused(opforge_session_open(path, &o, &session), "memory_limit is negative");
  o = all, o.loop_limit = -1;
  refused(opforge_session_open(path, &o, &session), "loop_limit is negative");
  o = all, o.n_libraries = 1;
  refused(opforge_session_open(path, &o, &session), "libraries is NULL\n  expected: a list of 1");
  o.libraries = none;
  refused(opforge_session_open(path, &o, &session), "libraries[0] is NULL");
  o = all, o.n_search = -1;
  refused(opforge_session_open(path, &o, &session), "the number of search is negative");
  expect(session == NULL, "a session that was not opened stays NULL");
}

static void without_session(void) {
  opforge_run run;
  opforge_session_statistics statistics;
  opforge_value value;
  opforge_results* results = NULL;
  opforge_node_time time;
  int32_t count = 0;
  const char *key, *text;
  memset(&run, 0, sizeof run);
  run.size = sizeof run;
  statistics.size = sizeof statistics;
  refused(opforge_session_run(NULL, &run), "session is NULL");
  refused(opforge_session_run_values(NULL, NULL, 0, &results), "session is NULL");
  refused(opforge_session_prepare(NULL, NULL, 0), "session is NULL");
  refused(opforge_session_metadata(NULL, 0, &key, &text), "session is NULL");
  refused(opforge_session_get_statistics(NULL, &statistics), "session is NULL");
  refused(opforge_session_profile_events(NULL, 10, 1), "session is NULL");
  refused(opforge_session_node_time(NULL, 0, &time), "session is NULL");
  refused(opforge_session_node_tensors(NULL, 0, NULL, 0, &count), "session is NULL");
  refused(opforge_results_value(NULL, 0, &value), "results is NULL");
  expect(opforge_session_input_count(NULL) == 0 && opforge_session_output_count(NULL) == 0 &&
             opforge_session_metadata_count(NULL) == 0 && opforge_session_input(NULL, 0) == NULL &&
             opforge_session_output(NULL, 0) == NULL && opforge_session_plan(NULL, NULL, 0) == 0 &&
             opforge_session_buffers(NULL, NULL, 0) == 0 && opforge_session_events(NULL, NULL, 0, NULL) == 0,
         "no session has nothing");
  opforge_session_profile(NULL, 1);
  opforge_session_close(NULL);
  opforge_results_free(NULL);
  opforge_free(NULL);
}

static void runs(opforge_session* session) {
  float data[8] = {0};
  int64_t shape[2] = {2, 4};
  const char* none[1] = {NULL};
  opforge_tensor input, output;
  opforge_run all, run;
  opforge_value value = {NULL, 1, 0};
  opforge_results* results = NULL;
  memset(&input, 0, sizeof input);
  memset(&output, 0, sizeof output);
  memset(&all, 0, sizeof all);
  input.data = data;
  input.device.type = OPFORGE_DEVICE_CPU;
  input.ndim = 2;
  input.dtype = opforge_session_input(session, 0)->dtype;
  input.shape = shape;
  all.size = sizeof all;
  all.inputs = &input;
  all.n_inputs = 1;
  all.outputs = &output;
  all.n_outputs = 1;

  refused(opforge_session_run(session, NULL), "run is NULL");
  run = all, run.inputs = NULL;
  refused(opforge_session_run(session, &run), "inputs is NULL\n  expected: a list of 1");
  run = all, run.n_inputs = -1;
  refused(opforge_session_run(session, &run), "the number of inputs is negative");
  run = all, run.outputs = NULL;
  refused(opforge_session_run(session, &run), "outputs is NULL\n  expected: a list of 1");
  run = all, run.input_names = none;
  refused(opforge_session_run(session, &run), "there is no such input\n  expected: 'x'\n  got: '(NULL)'");
  run = all, run.output_names = none;
  refused(opforge_session_run(session, &run), "there is no such output\n  expected: 'y'\n  got: '(NULL)'");
  input.shape = NULL;
  run = all;
  refused(opforge_session_run(session, &run), "'x': a tensor has no shape\n  expected: 2 numbers");
  refused(opforge_session_prepare(session, &input, 1), "'x': a tensor has no shape");
  refused(opforge_session_prepare(session, NULL, 1), "inputs is NULL");
  refused(opforge_session_run_values(session, NULL, 1, &results), "inputs is NULL");
  refused(opforge_session_run_values(session, &value, 1, NULL), "results is NULL");
  refused(opforge_session_run_values(session, &value, 1, &results),
          "tensors is NULL\n  expected: a list of 1");
  refused(opforge_session_get_statistics(session, NULL), "statistics is NULL");
  refused(opforge_session_metadata(session, 0, NULL, NULL), "key is NULL");
  refused(opforge_session_node_time(session, 0, NULL), "time is NULL");
  refused(opforge_session_node_tensors(session, 0, NULL, 3, NULL), "count is NULL");
  input.shape = shape;
  run = all;
  expect(opforge_session_run(session, &run) == OPFORGE_STATUS_OK, "after all that the session runs");
  opforge_free(output.data);
}

int main(int argc, char** argv) {
  opforge_session* session = NULL;
  if (argc != 2) return 2;
  options(argv[1]);
  without_session();
  if (opforge_session_open(argv[1], NULL, &session) != OPFORGE_STATUS_OK) return 1;
  runs(session);
  opforge_session_close(session);
  if (failures == 0) printf("good\n");
  return failures != 0;
}
