// program_fuzz.cpp: libFuzzer over programs that the verifier accepts: changes that keep a program a program
// (mutate_program.h), planned and run on small inputs. Whatever a file says, nothing is read or written out
// of bounds.
//
// Seeds are the models of the corpus (tools/corpus.py), so that every kind of node that the compiler makes is
// there.
#include <vector>

#include "mutate_program.h"
#include "opforge/runtime.h"
#include "small_inputs.h"

// An allocation that fails is an error of the run, not of the process.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  opforge::test::ProgramMutator mutator(data, size, seed);
  bool changed = false;
  for (unsigned k = 0; k < 1 + seed % 4; ++k) changed = mutator.change() || changed;
  if (!changed) size = LLVMFuzzerMutate(data, size, most);
  opforge::test::sign(data, size);
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  opforge_session_options options = {};
  options.size = sizeof options;
  opforge::test::bound(&options);
  opforge_session* session = nullptr;
  if (opforge_session_open_memory(bytes.data(), bytes.size(), &options, &session) != OPFORGE_STATUS_OK)
    return -1;  // kept out of the corpus
  opforge::test::run_small(session);
  opforge_session_close(session);
  return 0;
}
