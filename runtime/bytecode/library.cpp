// library.cpp: builds an opforge_library whose kernels run linked bytecode. Lives as long as the process, so
// the heap is used once per operator and nothing is freed.
#include "opforge/interpreter.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "bytecode/interpreter.h"
#include "bytecode/table_select.h"
#include "isa_select.h"

namespace opforge::bytecode {

namespace {

Status run_kernel(opforge_context* context, const opforge_arguments* inputs, const opforge_arguments* outputs,
                  const opforge_attribute* attributes) {
  return table().run_kernel(static_cast<const Program*>(context->kernel_data), context, inputs, outputs,
                            attributes);
}

// Allocations of one library; all are given back when it cannot be completed.
class Pool {
 public:
  ~Pool() {
    while (first_) {
      Node* const next = first_->next;
      std::free(first_->memory);
      delete first_;
      first_ = next;
    }
  }
  void* bytes(size_t n) {
    void* const memory = std::aligned_alloc(64, (n + 63) / 64 * 64 + (n == 0 ? 64 : 0));
    Node* const node = new (std::nothrow) Node{memory, first_};
    if (!memory || !node) {
      std::free(memory);
      delete node;
      return nullptr;
    }
    first_ = node;
    std::memset(memory, 0, n);
    return memory;
  }
  template <class T>
  T* array(size_t n) {
    return static_cast<T*>(bytes(n * sizeof(T)));
  }
  const char* text(const char* from) {
    const size_t n = std::strlen(from) + 1;
    char* const to = array<char>(n);
    if (to) std::memcpy(to, from, n);
    return to;
  }
  void keep() { first_ = nullptr; }

 private:
  struct Node {
    void* memory;
    Node* next;
  };
  Node* first_ = nullptr;
};

DType storage_of(opforge_dtype t) {
  if (t.code == OPFORGE_CODE_FLOAT && t.bits == 16) return DType::kF16;
  if (t.code == OPFORGE_CODE_FLOAT && t.bits == 32) return DType::kF32;
  if (t.code == OPFORGE_CODE_FLOAT && t.bits == 64) return DType::kF64;
  if (t.code == OPFORGE_CODE_BFLOAT && t.bits == 16) return DType::kBF16;
  return DType::kUndefined;
}

class Builder {
 public:
  Builder(char* reason, size_t size) : reason_(reason), size_(size) {}

  const opforge_library* build(const opforge_formula_description* operators, int32_t n, const char* id,
                               const char* version, const char* content_hash) {
    auto* library = pool_.array<opforge_library>(1);
    auto* table = pool_.array<const opforge_operator*>(size_t(n) + 1);
    if (!library || !table) return no_memory();
    for (int32_t k = 0; k < n; ++k) {
      table[k] = make_operator(operators[k]);
      if (!table[k]) return nullptr;
    }
    library->size = sizeof *library;
    library->abi = OPFORGE_ABI;
    library->id = pool_.text(id);
    library->version = pool_.text(version);
    library->content_hash = pool_.text(content_hash);
    char build[96];
    std::snprintf(build, sizeof build, "bytecode interpreter, %s, %s profile", opforge_isa_name(),
                  opforge_numeric_profile());
    library->build = pool_.text(build);
    library->operators = table;
    library->n_operators = n;
    if (!library->id || !library->version || !library->content_hash || !library->build) return no_memory();
    pool_.keep();
    return library;
  }

 private:
  std::nullptr_t no_memory() {
    fail("", "out of memory");
    return nullptr;
  }
  void fail(const char* name, const char* why) {
    if (reason_ && size_) std::snprintf(reason_, size_, "%s%s%s", name, *name ? ": " : "", why);
  }

  const opforge_operator* make_operator(const opforge_formula_description& d) {
    char why[200] = "";
    if (verify(d.blob, d.blob_size, why, sizeof why) != OPFORGE_STATUS_OK) {
      fail(d.name, why);
      return nullptr;
    }
    auto* op = pool_.array<opforge_operator>(1);
    auto* kernels = pool_.array<const opforge_kernel*>(size_t(d.n_dtypes) + 1);
    if (!op || !kernels) return no_memory();
    op->size = sizeof *op;
    op->abi = OPFORGE_ABI;
    op->domain = pool_.text(d.domain);
    op->name = pool_.text(d.name);
    op->since_version = d.since_version;
    op->flags = d.flags;
    op->signature = pool_.text(d.signature);
    op->types = pool_.text(d.types);
    op->autocast = pool_.text(d.autocast);
    op->gradient = pool_.text(d.gradient);
    op->schema_hash = pool_.text(d.schema_hash);
    op->kernels = kernels;
    op->n_kernels = d.n_dtypes;
    if (!op->domain || !op->name || !op->signature || !op->types || !op->autocast || !op->gradient ||
        !op->schema_hash) {
      return no_memory();
    }
    for (int32_t k = 0; k < d.n_dtypes; ++k) {
      kernels[k] = make_kernel(d, d.dtypes[k]);
      if (!kernels[k]) return nullptr;
    }
    return op;
  }

  const opforge_kernel* make_kernel(const opforge_formula_description& d, opforge_dtype dtype) {
    auto* kernel = pool_.array<opforge_kernel>(1);
    auto* kept = pool_.array<opforge_dtype>(1);
    const size_t bytes = program_bytes(d.blob);
    void* const memory = pool_.bytes(bytes);
    if (!kernel || !kept || !memory) return no_memory();
    const Program* program = nullptr;
    char why[200] = "";
    if (link(d.blob, storage_of(dtype), nullptr, ~0u, memory, bytes, &program, why, sizeof why) !=
        OPFORGE_STATUS_OK) {
      fail(d.name, why);
      return nullptr;
    }
    *kept = dtype;
    kernel->size = sizeof *kernel;
    kernel->abi = OPFORGE_ABI;
    kernel->device_type = OPFORGE_DEVICE_CPU;
    kernel->flags = OPFORGE_KERNEL_STRIDED;
    kernel->dtypes = kept;
    kernel->n_dtypes = 1;
    kernel->run = run_kernel;
    kernel->data = program;
    return kernel;
  }

  Pool pool_;
  char* reason_;
  size_t size_;
};

}  // namespace

}  // namespace opforge::bytecode

const opforge_library* opforge_interpreter_library(const opforge_formula_description* operators, int32_t n,
                                                   const char* id, const char* version,
                                                   const char* content_hash, char* reason,
                                                   size_t reason_size) {
  return opforge::bytecode::Builder(reason, reason_size).build(operators, n, id, version, content_hash);
}
opforge_status opforge_bytecode_verify(const void* blob, size_t size, char* reason, size_t reason_size) {
  return opforge::bytecode::verify(blob, size, reason, reason_size);
}
const char* opforge_isa_name(void) { return opforge::isa_name(opforge::isa_level()); }
const char* opforge_numeric_profile(void) { return opforge::bytecode::table().profile; }
