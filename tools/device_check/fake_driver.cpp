// fake_driver.cpp: the functions of NVIDIA's driver that opforge.build.cuda_driver calls, over the host's memory, with
// the signatures of cuda.h. With it the device check runs on a CPU (OPFORGE_CUDA_DRIVER names the library): kernels
// are the emulator's, so a "device address" is one of the host's. OPFORGE_FAKE_INIT: what cuInit returns;
// OPFORGE_FAKE_DEVICES: how many devices there are.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <map>
#include <mutex>

namespace {

struct Event {
  double at;
};

std::mutex guard;
std::map<uint64_t, size_t> blocks;
bool capturing;

int number_of(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text != nullptr ? atoi(text) : otherwise;
}

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Whether [address, address + size) lies in one block; what does not would be an illegal address.
bool inside(uint64_t address, size_t size) {
  const std::lock_guard<std::mutex> lock(guard);
  auto found = blocks.upper_bound(address);
  if (found == blocks.begin()) return false;
  --found;
  return address + size <= found->first + found->second;
}

constexpr int kInvalid = 1, kNoMemory = 2, kHandle = 400, kIllegal = 700, kCapturing = 900;
int handle;

}  // namespace

extern "C" {

int cuInit(unsigned) { return number_of("OPFORGE_FAKE_INIT", 0); }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = number_of("OPFORGE_FAKE_DEVICES", 1), 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, ordinal >= 0 ? 0 : kInvalid; }
int cuDeviceGetName(char* name, int size, int) { return snprintf(name, static_cast<size_t>(size), "Emulated GPU"), 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 16: return *value = 4, 0;
    case 38: return *value = 1 << 16, 0;
    case 75: return *value = 9, 0;
    case 76: return *value = 0, 0;
    default: return kInvalid;
  }
}
int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = size_t{1} << 30, 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &handle, 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void* context) { return context == &handle ? 0 : kHandle; }
int cuCtxGetDevice(int* device) { return *device = 0, 0; }
int cuCtxSynchronize(void) { return capturing ? kCapturing : 0; }
int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  *free_bytes = size_t{1} << 28;
  *total = size_t{1} << 30;
  return 0;
}

int cuMemAlloc_v2(uint64_t* address, size_t size) {
  if (capturing) return kCapturing;
  if (size == 0) return kInvalid;
  void* memory = aligned_alloc(256, (size + 255) / 256 * 256);
  if (memory == nullptr) return kNoMemory;
  memset(memory, 0xA5, size);
  *address = reinterpret_cast<uint64_t>(memory);
  const std::lock_guard<std::mutex> lock(guard);
  blocks[*address] = size;
  return 0;
}
int cuMemFree_v2(uint64_t address) {
  const std::lock_guard<std::mutex> lock(guard);
  if (blocks.erase(address) == 0) return kInvalid;
  free(reinterpret_cast<void*>(address));
  return 0;
}
int cuMemcpyHtoD_v2(uint64_t target, const void* source, size_t size) {
  if (capturing) return kCapturing;
  if (!inside(target, size)) return kIllegal;
  return memcpy(reinterpret_cast<void*>(target), source, size), 0;
}
int cuMemcpyDtoH_v2(void* target, uint64_t source, size_t size) {
  if (capturing) return kCapturing;
  if (!inside(source, size)) return kIllegal;
  return memcpy(target, reinterpret_cast<const void*>(source), size), 0;
}
int cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t size, void*) {
  if (!inside(target, size) || !inside(source, size)) return kIllegal;
  return memmove(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), size), 0;
}
int cuMemsetD8Async(uint64_t target, unsigned char byte, size_t size, void*) {
  if (!inside(target, size)) return kIllegal;
  return memset(reinterpret_cast<void*>(target), byte, size), 0;
}

int cuStreamCreate(void** stream, unsigned) { return *stream = new int(0), 0; }
int cuStreamSynchronize(void*) { return capturing ? kCapturing : 0; }
int cuStreamDestroy_v2(void* stream) { return delete static_cast<int*>(stream), 0; }

int cuEventCreate(void** event, unsigned) { return *event = new Event{0}, 0; }
int cuEventRecord(void* event, void*) { return static_cast<Event*>(event)->at = now(), 0; }
int cuEventSynchronize(void* event) { return event != nullptr ? 0 : kHandle; }
int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  const double between = static_cast<Event*>(end)->at - static_cast<Event*>(start)->at;
  return *milliseconds = static_cast<float>(1e3 * between), 0;
}
int cuEventDestroy_v2(void* event) { return delete static_cast<Event*>(event), 0; }

// What is recorded has run at once: launching the graph again changes nothing more.
int cuStreamBeginCapture_v2(void* stream, int) {
  if (stream == nullptr || capturing) return kCapturing;
  return capturing = true, 0;
}
int cuStreamEndCapture(void*, void** graph) {
  if (!capturing) return kInvalid;
  capturing = false;
  return *graph = &handle, 0;
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) { return *executable = graph, 0; }
int cuGraphLaunch(void* executable, void*) { return executable == &handle ? 0 : kHandle; }
int cuGraphExecDestroy(void*) { return 0; }
int cuGraphDestroy(void*) { return 0; }

int cuGetErrorName(int status, const char** text) {
  *text = status == 35 ? "CUDA_ERROR_INSUFFICIENT_DRIVER" : status == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR";
  return 0;
}
int cuGetErrorString(int status, const char** text) {
  *text = status == 100 ? "no CUDA-capable device is detected" : "the fake driver refuses";
  return 0;
}

}  // extern "C"
