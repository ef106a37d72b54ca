// texts.h: the texts of a program and of a run, which elements of string tensors are numbers of.
#pragma once

#include <memory>
#include <vector>

#include "program/program.h"
#include "session/blocks.h"

namespace opforge::session {

// Those of the file alone.
class FileTexts final : public Texts {
 public:
  explicit FileTexts(const Program& program) : program_(program) {}
  StringView text(uint32_t number) const override {
    return number < program_.n_strings ? program_.text(number) : StringView{"", 0};
  }
  char* make(int64_t, uint32_t*) override { return nullptr; }

 private:
  const Program& program_;
};

// Those of one run behind them. What they take is charged to the pool of the run.
class RunTexts final : public Texts {
 public:
  // limit: bytes that the values of the run may take, 0 = any number.
  RunTexts(const Program& program, BlockPool* pool, int64_t limit)
      : file_(program), first_(program.n_strings), pool_(*pool), limit_(limit) {}
  RunTexts(const RunTexts&) = delete;
  RunTexts& operator=(const RunTexts&) = delete;
  ~RunTexts() { clear(); }

  StringView text(uint32_t number) const override {
    if (number < first_) return file_.text(number);
    const size_t k = number - first_;
    return k < views_.size() ? views_[k] : StringView{"", 0};
  }
  char* make(int64_t size, uint32_t* number) override;
  // The bytes stay where they are, and live through the run.
  bool refer(const char* data, int64_t size, uint32_t* number);
  void clear();

 private:
  static constexpr int64_t kChunk = 1 << 16;
  bool affordable(int64_t bytes) const { return limit_ == 0 || pool_.live_bytes() + bytes <= limit_; }
  void charge(int64_t bytes) {
    pool_.charge(bytes);
    charged_ += bytes;
  }

  FileTexts file_;
  uint32_t first_;
  BlockPool& pool_;
  int64_t limit_, charged_ = 0;
  std::vector<StringView> views_;
  std::vector<std::unique_ptr<char[]>> chunks_;
  char* free_ = nullptr;  // in the last chunk
  int64_t left_ = 0;
};

}  // namespace opforge::session
