// kernels.h: the kernels of one operator, over all libraries that serve it: a package has one library for the
// CPU and one for each other device, and they come at different times.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>

#include "opforge/abi.h"
#include "opforge/detail/signature.h"

namespace opforge::adapter {

// A device type as people write it.
inline std::string device_name(int32_t device_type) {
  switch (device_type) {
    case OPFORGE_DEVICE_CPU:
      return "cpu";
    case OPFORGE_DEVICE_CUDA:
      return "cuda";
    case OPFORGE_DEVICE_ROCM:
      return "rocm";
    default:
      return "device " + std::to_string(device_type);
  }
}

// Calls look kernels up without a lock while another thread adds a library. Tables live as long as the
// process.
class KernelRows {
 public:
  explicit KernelRows(const opforge_operator* table) : first_{table, {}} {}
  KernelRows(const KernelRows&) = delete;
  KernelRows& operator=(const KernelRows&) = delete;
  ~KernelRows() {
    for (const Row* row = first_.next.load(); row != nullptr;) {
      const Row* const next = row->next.load();
      delete row;
      row = next;
    }
  }

  // Adds another library's row of the operator, unless it brings nothing new. Of equal kernels the first
  // serves.
  void add(const opforge_operator* table) {
    const std::lock_guard<std::mutex> guard(lock_);
    bool news = false;
    for (int32_t k = 0; k < table->n_kernels; ++k) {
      const opforge_kernel& one = *table->kernels[k];
      news = news || find(one.dtypes, static_cast<size_t>(one.n_dtypes), one.device_type) == nullptr;
    }
    if (!news) return;
    Row* last = &first_;
    while (Row* const next = last->next.load()) last = next;
    last->next.store(new Row{table, {}}, std::memory_order_release);
  }

  // The kernel for these dtypes, one per type variable; NULL where no library has one.
  const opforge_kernel* find(const opforge_dtype* dtypes, size_t variables, int32_t device_type) const {
    const Row* row = &first_;
    do {
      for (int32_t k = 0; k < row->table->n_kernels; ++k) {
        const opforge_kernel* const candidate = row->table->kernels[k];
        if (candidate->device_type != device_type || candidate->n_dtypes != static_cast<int32_t>(variables))
          continue;
        bool fits = true;
        for (size_t v = 0; fits && v < variables; ++v) fits = detail::same(candidate->dtypes[v], dtypes[v]);
        if (fits) return candidate;
      }
      row = row->next.load(std::memory_order_acquire);
    } while (row != nullptr);
    return nullptr;
  }

  // Whether any library has kernels for a device.
  bool serve(int32_t device_type) const {
    bool any = false;
    each([&](const opforge_kernel& one) { any = any || one.device_type == device_type; });
    return any;
  }

  template <class F>
  void each(F f) const {
    for (const Row* row = &first_; row != nullptr; row = row->next.load(std::memory_order_acquire)) {
      for (int32_t k = 0; k < row->table->n_kernels; ++k) f(*row->table->kernels[k]);
    }
  }

 private:
  struct Row {
    const opforge_operator* table;
    std::atomic<Row*> next;
  };
  Row first_;
  std::mutex lock_;
};

}  // namespace opforge::adapter
