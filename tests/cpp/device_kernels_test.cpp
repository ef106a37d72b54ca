// device_kernels_test.cpp: an operator's kernels over several libraries, and the loader that is asked for
// one.
#include <stdio.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "checked.h"
#include "common/device.h"

namespace {

using namespace opforge;
using namespace opforge::adapter;

constexpr opforge_dtype kF16 = {OPFORGE_CODE_FLOAT, 16, 1};
constexpr opforge_dtype kF32 = {OPFORGE_CODE_FLOAT, 32, 1};

// One library's row of an operator with a kernel for each of some dtypes.
struct Library {
  std::vector<opforge_dtype> dtypes;
  std::vector<opforge_kernel> kernels;
  std::vector<const opforge_kernel*> pointers;
  opforge_operator row{};

  Library(int32_t device, std::vector<opforge_dtype> types, const char* hash = "h")
      : dtypes(std::move(types)), kernels(dtypes.size()) {
    for (size_t k = 0; k < kernels.size(); ++k) {
      kernels[k] = {};
      kernels[k].size = sizeof(opforge_kernel);
      kernels[k].device_type = device;
      kernels[k].dtypes = &dtypes[k];
      kernels[k].n_dtypes = 1;
      pointers.push_back(&kernels[k]);
    }
    row.size = sizeof row;
    row.abi = OPFORGE_ABI;
    row.domain = "test";
    row.name = "Op";
    row.since_version = 1;
    row.signature = "(x: T[*S]) -> (y: T[*S])";
    row.types = "T: f16 f32 f64";
    row.autocast = row.gradient = "";
    row.schema_hash = hash;
    row.kernels = pointers.data();
    row.n_kernels = static_cast<int32_t>(pointers.size());
  }
};

const opforge_kernel* cuda(const Plan& plan, const opforge_dtype& dtype) {
  return plan.kernels.find(&dtype, 1, OPFORGE_DEVICE_CUDA);
}

void test_rows() {
  Library cpu(OPFORGE_DEVICE_CPU, {kF16, kF32}), first(OPFORGE_DEVICE_CUDA, {kF32});
  Library again(OPFORGE_DEVICE_CUDA, {kF32}), more(OPFORGE_DEVICE_CUDA, {kF32, kF16});
  Plan plan(&cpu.row);
  CHECK(plan.kernel(&kF32, OPFORGE_DEVICE_CPU) == cpu.pointers[1]);
  CHECK(cuda(plan, kF32) == nullptr);
  merge(plan, Plan(&first.row), plan.key, "test");
  CHECK(cuda(plan, kF32) == first.pointers[0]);
  CHECK(cuda(plan, kF16) == nullptr);
  merge(plan, Plan(&again.row), plan.key, "test");  // brings nothing new
  int rows = 0;
  plan.kernels.each([&](const opforge_kernel&) { ++rows; });
  CHECK(rows == 3);
  merge(plan, Plan(&more.row), plan.key, "test");
  CHECK(cuda(plan, kF32) == first.pointers[0]);
  CHECK(cuda(plan, kF16) == more.pointers[1]);
  CHECK(plan.kernel(&kF16, OPFORGE_DEVICE_CPU) == cpu.pointers[0]);

  Library other(OPFORGE_DEVICE_CUDA, {kF32}, "another hash");
  CHECK(raised_words([&] {
          merge(plan, Plan(&other.row), plan.key, "test");
        }).find("another operator of this name") != std::string::npos);
}

void test_words() {
  Library cpu(OPFORGE_DEVICE_CPU, {kF16, kF32});
  const Plan plan(&cpu.row);
  const std::string text = raised_words([&] { device_kernel(plan, &kF32, OPFORGE_DEVICE_CUDA); });
  CHECK(text.find("test::Op: no kernel for these dtypes on this device") == 0);
  CHECK(text.find("expected: cpu f16; cpu f32\n") != std::string::npos);
  CHECK(text.find("got: cuda T = f32\n") != std::string::npos);
  CHECK(text.find("opforge build PACKAGE --device cuda") != std::string::npos);
}

Plan* asked = nullptr;
Library* given = nullptr;
int loads = 0;

int32_t give(const char*, int32_t, char*, size_t) {
  ++loads;
  asked->kernels.add(&given->row);
  return OPFORGE_STATUS_OK;
}

int32_t refuse(const char* key, int32_t device, char* text, size_t size) {
  snprintf(text, size, "%s: nothing for device %d", key, device);
  return OPFORGE_STATUS_UNSUPPORTED;
}

void test_loader() {
  Library cpu(OPFORGE_DEVICE_CPU, {kF32}), device(OPFORGE_DEVICE_CUDA, {kF32});
  Plan plan(&cpu.row);
  device_loader() = &refuse;
  CHECK(raised_words([&] { device_kernel(plan, &kF32, OPFORGE_DEVICE_CUDA); }) ==
        "test::Op:1: nothing for device 2");
  asked = &plan;
  given = &device;
  device_loader() = &give;
  CHECK(device_kernel(plan, &kF32, OPFORGE_DEVICE_CUDA) == device.pointers[0]);
  CHECK(device_kernel(plan, &kF32, OPFORGE_DEVICE_CUDA) == device.pointers[0]);
  CHECK(loads == 1);  // what is known is not asked for again
  raised_words([&] { device_kernel(plan, &kF16, OPFORGE_DEVICE_CPU); });
  CHECK(loads == 1);  // nor another dtype for the CPU, whose kernels come in one library
  device_loader() = nullptr;
}

void test_the_cpu_after_a_device() {
  Library cpu(OPFORGE_DEVICE_CPU, {kF32}), device(OPFORGE_DEVICE_CUDA, {kF32});
  Plan plan(&device.row);
  device_loader() = nullptr;
  const std::string text = raised_words([&] { device_kernel(plan, &kF32, OPFORGE_DEVICE_CPU); });
  CHECK(text.find("expected: cuda f32\n") != std::string::npos);
  CHECK(text.find("got: cpu T = f32\n") != std::string::npos);
  asked = &plan;
  given = &cpu;
  loads = 0;
  device_loader() = &give;
  CHECK(device_kernel(plan, &kF32, OPFORGE_DEVICE_CPU) == cpu.pointers[0]);
  CHECK(device_kernel(plan, &kF32, OPFORGE_DEVICE_CPU) == cpu.pointers[0]);
  CHECK(loads == 1);
  device_loader() = nullptr;
}

// Calls go on while a library is added: they find the kernel or do not, and nothing else.
void test_threads() {
  Library cpu(OPFORGE_DEVICE_CPU, {kF32}), device(OPFORGE_DEVICE_CUDA, {kF32});
  for (int round = 0; round < 50; ++round) {
    Plan plan(&cpu.row);
    std::atomic<bool> wrong{false};
    std::vector<std::thread> callers;
    for (int t = 0; t < 3; ++t) {
      callers.emplace_back([&] {
        while (cuda(plan, kF32) == nullptr) {
          if (plan.kernels.find(&kF32, 1, OPFORGE_DEVICE_CPU) != cpu.pointers[0]) wrong = true;
          std::this_thread::yield();
        }
        if (cuda(plan, kF32) != device.pointers[0]) wrong = true;
      });
    }
    plan.kernels.add(&device.row);
    for (std::thread& one : callers) one.join();
    CHECK(!wrong);
  }
}

}  // namespace

int main() {
  test_rows();
  test_words();
  test_loader();
  test_the_cpu_after_a_device();
  test_threads();
  return failures == 0 ? 0 : 1;
}
