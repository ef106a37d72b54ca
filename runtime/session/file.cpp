// file.cpp: opens the file once and keeps its size; the descriptor is closed at once, the mapping stays.
#include "session/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "threads/pool.h"

namespace opforge::session {
namespace {

class Descriptor {
 public:
  explicit Descriptor(const char* path) : fd_(::open(path, O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Status size_of(const char* path, const Descriptor& descriptor, size_t* size, Error* error) {
  struct stat status = {};
  if (descriptor.get() < 0 || ::fstat(descriptor.get(), &status) != 0) {
    const Status code = errno == ENOENT ? OPFORGE_STATUS_NOT_FOUND : OPFORGE_STATUS_INVALID_ARGUMENT;
    return error->fail(code, "the file cannot be opened").at("%s", path).found("%s", std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "this is no regular file").at("%s", path);
  }
  *size = static_cast<size_t>(status.st_size);
  if (*size < sizeof(format::Header)) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "the file is too short to be an opforge bin")
        .at("header")
        .wanted("at least %zu bytes", sizeof(format::Header))
        .found("%zu bytes", *size);
  }
  return OPFORGE_STATUS_OK;
}

}  // namespace

Bytes::~Bytes() {
  if (kind_ == kMapped) ::munmap(data_, size_);
  if (kind_ == kOwned) std::free(data_);
}

Status Bytes::map(const char* path, Error* error) {
  const Descriptor descriptor(path);
  if (size_of(path, descriptor, &size_, error)) return *error;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  if (data == MAP_FAILED) {
    return error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "the file cannot be mapped")
        .at("%s", path)
        .found("%s", std::strerror(errno))
        .advise("open it with mmap switched off");
  }
  data_ = data;
  kind_ = kMapped;
  return OPFORGE_STATUS_OK;
}

Status Bytes::allocate(size_t size, Error* error) {
  if (size > format::kMaxBytes || ::posix_memalign(&data_, 64, size == 0 ? 64 : size) != 0) {
    data_ = nullptr;
    return error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for a copy of the file")
        .found("%zu bytes", size);
  }
  size_ = size;
  kind_ = kOwned;
  return OPFORGE_STATUS_OK;
}

Status Bytes::read(const char* path, Error* error) {
  const Descriptor descriptor(path);
  size_t size = 0;
  if (size_of(path, descriptor, &size, error)) return *error;
  if (allocate(size, error)) return *error;
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(descriptor.get(), static_cast<char*>(data_) + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return error->fail(OPFORGE_STATUS_CORRUPT, "the file became shorter while it was read").at("%s", path);
    }
    done += static_cast<size_t>(n);
  }
  return OPFORGE_STATUS_OK;
}

Status Bytes::borrow(const void* bytes, size_t size, bool copy, Error* error) {
  if (copy || reinterpret_cast<uintptr_t>(bytes) % format::kAlignment != 0) {
    if (allocate(size, error)) return *error;
    if (size != 0) std::memcpy(data_, bytes, size);
    return OPFORGE_STATUS_OK;
  }
  data_ = const_cast<void*>(bytes);
  size_ = size;
  return OPFORGE_STATUS_OK;
}

Status Weights::start(const format::File& file, Error* error) {
  file_ = &file;
  const uint64_t size = file.sections[format::kWeights].size;
  blocks_ = static_cast<uint32_t>((size + format::kBlock - 1) / format::kBlock);
  good_.reset(new (std::nothrow) std::atomic<int32_t>[blocks_ + 1]);
  if (!good_) return error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for the state of the weights");
  for (uint32_t k = 0; k < blocks_; ++k) good_[k].store(0, std::memory_order_relaxed);
  unchecked_.store(blocks_, std::memory_order_relaxed);
  return OPFORGE_STATUS_OK;
}

Status Weights::check(uint64_t offset, uint64_t size, Error* error) {
  if (size == 0 || all_checked()) return OPFORGE_STATUS_OK;
  const auto last = static_cast<uint32_t>((offset + size - 1) / format::kBlock);
  for (auto block = static_cast<uint32_t>(offset / format::kBlock); block <= last; ++block) {
    if (good_[block].load(std::memory_order_acquire) != 0) continue;
    if (!format::weights_block_good(*file_, block)) {
      return error->fail(OPFORGE_STATUS_CORRUPT, "a block of the weights is damaged: its checksum differs")
          .at("section 'weights', block %u", block)
          .advise("compile the model again, or fetch the file again");
    }
    if (good_[block].exchange(1, std::memory_order_acq_rel) == 0) unchecked_.fetch_sub(1);
  }
  return OPFORGE_STATUS_OK;
}

Status Weights::check_all(int32_t threads, Error* error) {
  if (all_checked()) return OPFORGE_STATUS_OK;
  std::atomic<int64_t> bad{-1};
  struct Job {
    Weights* self;
    std::atomic<int64_t>* bad;
  } job{this, &bad};
  parallel_for(
      blocks_, 1,
      [](void* user, int64_t begin, int64_t end) {
        auto* job = static_cast<Job*>(user);
        for (int64_t k = begin; k < end; ++k) {
          Error ignored;
          if (job->self->check(static_cast<uint64_t>(k) * format::kBlock, 1, &ignored)) job->bad->store(k);
        }
      },
      &job, threads);
  if (bad.load() >= 0) return check(static_cast<uint64_t>(bad.load()) * format::kBlock, 1, error);
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::session
