// loader_fuzz.cpp: libFuzzer over the loader and over programs that pass it.
//
// Checksums would stop nearly every mutation at the door, so they are made right before the file is opened:
// what is fuzzed are the checks behind them, and every program that is accepted is planned and run on small
// inputs.
#include <vector>

#include "opforge/runtime.h"
#include "sign.h"
#include "small_inputs.h"

// An allocation that fails is an error of the run, not of the process.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  opforge::test::sign(bytes.data(), bytes.size());
  opforge_session_options options = {};
  options.size = sizeof options;
  opforge::test::bound(&options);
  opforge_session* session = nullptr;
  if (opforge_session_open_memory(bytes.data(), bytes.size(), &options, &session) != OPFORGE_STATUS_OK)
    return 0;
  opforge::test::run_small(session);
  opforge_session_close(session);
  return 0;
}
