// cursor.h: takes arrays of records from a section, checking that they lie inside it.
#pragma once

#include "program/program.h"

namespace opforge {

class Cursor {
 public:
  Cursor(const Program& program, format::Kind kind, Error* error)
      : section_(program.file.sections[kind]), kind_(kind), error_(error) {}

  // Null with an error when the section is too short or count is over the limit. Arrays of no records are
  // fine.
  template <class T>
  const T* array(uint64_t count, uint64_t limit) {
    static const T none{};
    if (count > limit || count * sizeof(T) > section_.size - offset_) {
      error_->fail(OPFORGE_STATUS_CORRUPT, "a table does not fit its section")
          .at("section '%s'", format::kind_name(kind_))
          .wanted("at most %llu records, within %llu bytes", static_cast<unsigned long long>(limit),
                  static_cast<unsigned long long>(section_.size))
          .found("%llu records of %zu bytes at %llu", static_cast<unsigned long long>(count), sizeof(T),
                 static_cast<unsigned long long>(offset_));
      return nullptr;
    }
    const void* result = section_.data + offset_;
    offset_ += count * sizeof(T);
    return count == 0 ? &none : static_cast<const T*>(result);
  }
  const uint8_t* rest() const { return section_.data + offset_; }
  uint64_t remaining() const { return section_.size - offset_; }
  // What a section holds beyond its records is damage too.
  Status finish() {
    if (offset_ == section_.size) return OPFORGE_STATUS_OK;
    return error_->fail(OPFORGE_STATUS_CORRUPT, "a section is longer than its records")
        .at("section '%s'", format::kind_name(kind_));
  }

 private:
  const format::Section& section_;
  format::Kind kind_;
  Error* error_;
  uint64_t offset_ = 0;
};

}  // namespace opforge
