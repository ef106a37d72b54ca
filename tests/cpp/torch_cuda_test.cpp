// torch_cuda_test.cpp: what a call on CUDA adds to PyTorch's adapter on both routes, against functions of
// this program in the place of PyTorch's: guard, stream, scratch memory, the device of a call.
#include "torch_cuda.h"

#include <stdlib.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "checked.h"
#include "devices.h"

namespace {

std::vector<std::string> events;
bool refuse_stream = false;

}  // namespace

// The names that the adapter looks up; the program exports them.
extern "C" {
OPFORGE_EXPORT int32_t aoti_torch_create_cuda_guard(int32_t device, void** guard) {
  if (device > 1) return 1;
  events.push_back("enter " + std::to_string(device));
  *guard = &events;
  return 0;
}
OPFORGE_EXPORT int32_t aoti_torch_delete_cuda_guard(void* guard) {
  events.push_back(guard == &events ? "leave" : "leave another");
  return 0;
}
OPFORGE_EXPORT int32_t aoti_torch_get_current_cuda_stream(int32_t device, void** stream) {
  if (refuse_stream) return 1;
  events.push_back("stream " + std::to_string(device));
  *stream = reinterpret_cast<void*>(static_cast<intptr_t>(0x100 + device));
  return 0;
}
}

namespace {

using namespace opforge;
using namespace opforge::torch_host;

struct Block {
  void* memory;
  explicit Block(int64_t bytes)
      : memory(aligned_alloc(512, (static_cast<size_t>(bytes) + 511) / 512 * 512)) {}
  Block(Block&& other) noexcept : memory(std::exchange(other.memory, nullptr)) {}
  ~Block() {
    if (memory != nullptr) events.push_back("free");
    free(memory);
  }
};

int64_t asked = 0;
bool out_of_memory = false;

struct Maker {
  static Block block(int64_t bytes, int32_t device) {
    if (out_of_memory) throw std::runtime_error("out of memory");
    asked = bytes;
    events.push_back("allocate on " + std::to_string(device));
    return Block(bytes);
  }
  static void* address(const Block& block) { return block.memory; }
};

opforge_context new_context() { return CallContext(nullptr, nullptr).base; }

void test_call() {
  events.clear();
  {
    opforge_context context = new_context();
    CudaCall<Maker> call(1, "test::Op");
    call.prepare(&context);
    CHECK(context.device.type == OPFORGE_DEVICE_CUDA && context.device.id == 1);
    CHECK(context.stream == reinterpret_cast<void*>(intptr_t{0x101}));
    void* const some = context.scratch(&context, 1000, 16);
    CHECK(some != nullptr && asked == 1000);
    void* const aligned = context.scratch(&context, 10, 4096);
    CHECK(reinterpret_cast<uintptr_t>(aligned) % 4096 == 0 && asked == 10 + 4096);
    CHECK(context.scratch(&context, 0, 1) != nullptr && asked == 1);
    CHECK(context.scratch(&context, SIZE_MAX, 16) == nullptr);
    CHECK(context.scratch(&context, 16, SIZE_MAX / 2 + 1) == nullptr);
    out_of_memory = true;
    CHECK(context.scratch(&context, 16, 16) == nullptr);
    out_of_memory = false;
  }
  // Memory goes back while its device is still the current one.
  const std::vector<std::string> expected = {"enter 1",       "stream 1",      "allocate on 1",
                                             "allocate on 1", "allocate on 1", "free",
                                             "free",          "free",          "leave"};
  CHECK(events == expected);
}

void test_refusals() {
  CHECK(raised_words([] {
          CudaScope(7, "test::Op");
        }).find("test::Op: PyTorch gives no access to the device") == 0);
  events.clear();
  refuse_stream = true;
  CHECK(raised_words([] { CudaScope(0, "test::Op"); }).find("no access to its current stream") !=
        std::string::npos);
  refuse_stream = false;
  CHECK((events == std::vector<std::string>{"enter 0", "leave"}));
}

opforge_operator row(uint32_t flags) {
  opforge_operator one{};
  one.size = sizeof one;
  one.abi = OPFORGE_ABI;
  one.domain = "test";
  one.name = "Op";
  one.since_version = 1;
  one.flags = flags;
  one.signature = "(x: T[*S], y: T[*R]) -> (z: T[bcast(S, R)])";
  one.types = "T: f32";
  one.autocast = one.gradient = one.schema_hash = "";
  return one;
}

// The device of a call with these, and which of them were moved there.
std::string device_of(uint32_t flags, opforge_device x, int32_t x_rank, opforge_device y, int32_t y_rank) {
  const opforge_operator table = row(flags);
  const torch_host::Plan plan(&table);
  opforge_tensor tensors[2] = {};
  tensors[0].device = x, tensors[0].ndim = x_rank;
  tensors[1].device = y, tensors[1].ndim = y_rank;
  const int32_t counts[] = {1, 1};
  std::string moved;
  std::string text = raised_words([&] {
    const opforge_device found = call_device(plan, tensors, counts, [&](size_t flat, opforge_device to) {
      moved += " " + std::to_string(flat) + "->" + device_words(to);
    });
    moved = device_words(found) + moved;
  });
  return text == "nothing was raised" ? moved : text;
}

void test_devices() {
  constexpr opforge_device cpu{OPFORGE_DEVICE_CPU, 0}, first{OPFORGE_DEVICE_CUDA, 0},
      second{OPFORGE_DEVICE_CUDA, 1};
  constexpr uint32_t kFormula = OPFORGE_OPERATOR_FORMULA;
  CHECK(device_of(kFormula, cpu, 0, cpu, 2) == "cpu");
  CHECK(device_of(kFormula, second, 2, second, 0) == "cuda:1");
  CHECK(device_of(kFormula, second, 2, cpu, 0) == "cuda:1 1->cuda:1");
  CHECK(device_of(kFormula, cpu, 0, first, 1) == "cuda:0 0->cuda:0");
  for (const std::string& text : {device_of(kFormula, first, 2, cpu, 1), device_of(0, first, 2, cpu, 0)}) {
    CHECK(text.find("test::Op, argument y: inputs are on different devices") == 0);
    CHECK(text.find("expected: all on cuda:0\n  got: cpu\n  to do: move them") != std::string::npos);
  }
  CHECK(device_of(kFormula, first, 0, second, 0).find("got: cuda:1") != std::string::npos);
}

}  // namespace

int main() {
  test_call();
  test_refusals();
  test_devices();
  return failures == 0 ? 0 : 1;
}
