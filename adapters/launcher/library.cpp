// library.cpp: the table of a kernel library, read from what stands behind the launcher in its own file.
//
// The file ends with a trailer: "OPFORGEK", the format's version, the CRC-32 and the size of what comes
// before it. Numbers are little-endian; a string is its size in 32 bits, its bytes and a zero. The writer,
// with the order of all fields, is src/opforge/build/cuda/payload.py.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "launcher/kernels.h"
#include "launcher/payload.h"

namespace opforge::launcher {
namespace {

constexpr char kMagic[8] = {'O', 'P', 'F', 'O', 'R', 'G', 'E', 'K'};
constexpr uint32_t kVersion = 1;
constexpr size_t kTrailer = 24, kImageAlignment = 16;

struct OperatorRow {
  opforge_operator row = {};
  std::vector<int> sum_to;
  std::deque<Kernel> kernels;
  std::vector<const opforge_kernel*> pointers;
};

// The table, for as long as the process lives, or the reason why there is none.
struct Table {
  std::unique_ptr<char[]> bytes;
  size_t size = 0;
  opforge_library library = {};
  std::deque<OperatorRow> operators;
  std::vector<const opforge_operator*> pointers;
  std::string reason;

  Table() {
    if (read_file() && !read_table() && reason.empty())
      reason = "what it holds is not as this launcher reads it; build it again";
  }

  bool no(const std::string& why) { return reason = why, false; }

  bool read_file() {
    Dl_info self = {};
    if (dladdr(reinterpret_cast<const void*>(&kMagic), &self) == 0 || self.dli_fname == nullptr)
      return no("the loader does not say which file it is");
    const int file = open(self.dli_fname, O_RDONLY | O_CLOEXEC);
    if (file < 0)
      return no(std::string("its file cannot be read: ") + self.dli_fname + ": " + strerror(errno));
    const bool done = read_from(file);
    close(file);
    return done;
  }

  bool read_from(int file) {
    struct stat status = {};
    char trailer[kTrailer];
    if (fstat(file, &status) != 0) return no(std::string("its file cannot be read: ") + strerror(errno));
    const auto whole = static_cast<uint64_t>(status.st_size);
    if (whole < kTrailer || !read_at(file, trailer, kTrailer, whole - kTrailer))
      return no("its file cannot be read");
    Payload fields(trailer, kTrailer);
    if (memcmp(fields.take(sizeof kMagic), kMagic, sizeof kMagic) != 0)
      return no("it holds no kernels: it is the launcher alone, or its end was cut off");
    const uint32_t version = fields.number<uint32_t>(), checksum = fields.number<uint32_t>();
    const uint64_t held = fields.number<uint64_t>();
    if (version != kVersion)
      return no("its kernels are in format " + std::to_string(version) + ", this launcher reads " +
                std::to_string(kVersion) + "; build it again");
    if (held > whole - kTrailer)
      return no("its kernels are damaged: they are said to be larger than the file");
    size = static_cast<size_t>(held);
    bytes.reset(new char[size]);
    if (!read_at(file, bytes.get(), size, whole - kTrailer - held)) return no("its file cannot be read");
    if (crc32(bytes.get(), size) != checksum)
      return no("its kernels are damaged: their checksum is another; build it again");
    return true;
  }

  static bool read_at(int file, char* to, size_t count, uint64_t from) {
    while (count > 0) {
      const ssize_t got = pread(file, to, count, static_cast<off_t>(from));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      to += got;
      from += static_cast<uint64_t>(got);
      count -= static_cast<size_t>(got);
    }
    return true;
  }

  bool read_table() {
    Payload in(bytes.get(), size);
    library.size = sizeof library;
    library.abi = in.number<uint32_t>();
    if (library.abi != OPFORGE_ABI)
      return no("it is built for ABI " + std::to_string(library.abi) + "; build it again");
    library.id = in.text();
    library.version = in.text();
    library.content_hash = in.text();
    library.build = in.text();
    library.architectures = in.text();
    const uint32_t count = in.count(1);
    for (uint32_t k = 0; k < count; ++k) read_operator(&in, &operators.emplace_back());
    for (const OperatorRow& one : operators) pointers.push_back(&one.row);
    library.operators = pointers.data();
    library.n_operators = static_cast<int32_t>(pointers.size());
    return in.ok() && in.left() == 0;
  }

  void read_operator(Payload* in, OperatorRow* made) {
    opforge_operator& row = made->row;
    row.size = sizeof row;
    row.abi = OPFORGE_ABI;
    row.domain = in->text();
    row.name = in->text();
    row.since_version = in->number<int32_t>();
    row.flags = in->number<uint32_t>();
    for (const char** text : {&row.signature, &row.types, &row.autocast, &row.gradient, &row.schema_hash})
      *text = in->text();
    const auto flags = in->number<uint32_t>();
    cuda::FormulaShape shape = {};
    shape.n_inputs = static_cast<int>(in->count(0, cuda::kOperands));
    shape.n_attributes = static_cast<int>(in->count(0, cuda::kAttributes));
    shape.n_outputs = static_cast<int>(in->count(4, cuda::kOperands));
    for (int k = 0; k < shape.n_outputs; ++k) {
      made->sum_to.push_back(in->number<int32_t>());
      in->require(made->sum_to.back() < shape.n_inputs);
    }
    shape.sum_to = made->sum_to.data();
    const uint32_t count = in->count(1);
    for (uint32_t k = 0; k < count; ++k) read_kernel(in, shape, flags, &made->kernels.emplace_back());
    for (const Kernel& one : made->kernels) made->pointers.push_back(&one.row);
    row.kernels = made->pointers.data();
    row.n_kernels = static_cast<int32_t>(made->pointers.size());
  }

  void read_kernel(Payload* in, const cuda::FormulaShape& shape, uint32_t flags, Kernel* made) {
    const uint32_t variables = in->count(4);
    for (uint32_t k = 0; k < variables; ++k) made->dtypes.push_back(dtype(in));
    for (int k = 0; k < shape.n_inputs + shape.n_outputs; ++k) made->operands.push_back(dtype(in));
    made->formula.shape = shape;
    made->formula.shape.input_dtypes = made->operands.data();
    made->formula.shape.output_dtypes = made->operands.data() + shape.n_inputs;
    made->formula.widest = static_cast<int>(in->count(0, 16));
    made->formula.sum_bytes = in->count(0, 16);
    in->require(made->formula.widest > 0);
    bool sums = false;
    for (int k = 0; k < shape.n_outputs; ++k) sums = sums || shape.sum_to[k] >= 0;
    const uint32_t names = in->count(1, cuda::kFormulaKernels);
    in->require(names == static_cast<uint32_t>(sums ? cuda::kFormulaKernels : cuda::kPartial32));
    for (uint32_t k = 0; k < names; ++k) made->names.push_back(in->text());
    const uint32_t images = in->count(1);
    for (uint32_t k = 0; k < images; ++k) {
      const char* architecture = in->text();
      const auto length = in->number<uint64_t>();
      in->align(kImageAlignment);
      const char* data = in->take(length);
      // The driver reads PTX to its end as a string.
      const bool ends = in->ok() && length > 0 && data[length - 1] == 0;
      in->require(ends || strncmp(architecture, "sm_", 3) == 0);
      made->images.push_back({architecture, data});
    }
    made->architectures = library.architectures;
    opforge_kernel& row = made->row;
    row.size = sizeof row;
    row.abi = OPFORGE_ABI;
    row.device_type = OPFORGE_DEVICE_CUDA;
    row.flags = flags;
    row.dtypes = made->dtypes.data();
    row.n_dtypes = static_cast<int32_t>(variables);
    row.run = &run;
    row.data = static_cast<const opforge_tuning*>(made);
  }

  static opforge_dtype dtype(Payload* in) {
    const auto code = in->number<uint8_t>(), bits = in->number<uint8_t>();
    return {code, bits, in->number<uint16_t>()};
  }
};

const Table& table() {
  static const Table* made = new Table;  // hosts keep its pointers until the process ends
  return *made;
}

}  // namespace
}  // namespace opforge::launcher

extern "C" OPFORGE_EXPORT const opforge_library* opforge_library_v1(const opforge_host* host) {
  using opforge::launcher::table;
  const auto refuse = [host](const char* reason) {
    if (host != nullptr && host->reason != nullptr && host->reason_size > 0)
      snprintf(host->reason, host->reason_size, "%s", reason);
    return nullptr;
  };
  if (host != nullptr && host->abi != OPFORGE_ABI) {
    char reason[80];
    snprintf(reason, sizeof reason, "it is built for ABI %u, the host speaks ABI %u", OPFORGE_ABI, host->abi);
    return refuse(reason);
  }
  try {
    return table().reason.empty() ? &table().library : refuse(table().reason.c_str());
  } catch (...) {
    return refuse("there is no memory for its kernels");
  }
}
