// watch.h: what watched runs write down: when each node began and ended and on which thread. A run that
// nobody watches is another instance of the same loop (context.cpp), in which nothing of this is left.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "session/probes.h"
#include "session/ranges.h"
#include "threads/pool.h"
#include "threads/ticks.h"

namespace opforge::session {

class Model;

// As OPFORGE_EVENT_... of the C API.
enum class EventKind : int32_t { kNode = 0, kAgain = 1, kHelp = 2, kRun = 3, kCopies = 4 };

struct Event {
  EventKind kind;
  int32_t node, thread, run;
  uint64_t begin, end;  // ticks
};

// Of a session: sums per node, and the events themselves where they are asked for.
class Recorder {
 public:
  // Whether the run that begins is to be watched: somebody profiles, a probe is on, or a tool shows ranges.
  bool wanted() {
    if (!watching_.load(std::memory_order_relaxed)) return probes_wanted();
    return every_ <= 1 || begun_.fetch_add(1, std::memory_order_relaxed) % every_ == 0;
  }
  // When the session is opened.
  void open(const Model& model);
  // most: events that are kept; later ones are counted only. every: one run in so many is watched.
  void start(size_t most, uint32_t every);
  void stop();

  struct Sum {
    int64_t runs = 0;
    uint64_t ticks = 0;
  };
  // Runs and nanoseconds of a node since start().
  void sum(uint32_t node, int64_t* runs, int64_t* nanoseconds);
  // Calls body(event, begin_ns, end_ns) for each kept event in order; returns how many were lost.
  template <class Body>
  int64_t each(Body&& body) {
    std::lock_guard<std::mutex> lock(mutex_);
    scale_.measure();
    for (const Event& event : events_) body(event, scale_.at(event.begin), scale_.at(event.end));
    return lost_;
  }
  size_t count() {
    std::lock_guard<std::mutex> lock(mutex_);
    return events_.size();
  }

 private:
  friend class Watch;
  void name_nodes();

  const Model* model_ = nullptr;
  const Ranges* ranges_ = nullptr;
  std::atomic<bool> watching_{false}, recording_{false};
  std::atomic<int32_t> runs_{0};
  std::atomic<uint32_t> begun_{0}, every_{1};
  std::once_flag named_;
  std::vector<std::string> names_;  // "Conv conv1.out" for each node
  std::vector<void*> handles_;      // of the tool, for each node
  std::mutex mutex_;
  std::vector<Sum> sums_;
  std::vector<Event> events_;
  size_t most_ = 0;
  int64_t lost_ = 0;
  TickScale scale_;
};

// Nobody looks.
struct Unwatched {
  void begin(uint32_t) {}
  void end(uint32_t, bool) {}
  void copies_end() {}
  void lanes_begin() {}
  void lanes_end() {}
  Unwatched lane(Event*, size_t) { return {}; }
};

// One thread of one run. Readings are chained: what ends a node begins the next one.
class Watch final : public HelpWatch {
 public:
  // room: for events until they are handed over, at least 1.
  Watch(Recorder* recorder, Event* room, size_t size);
  Watch(const Watch& run, Event* room, size_t size);  // another thread of the same run
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  Watch lane(Event* room, size_t size) { return Watch(*this, room, size); }
  void begin(uint32_t node) {
    node_ = static_cast<int32_t>(node);
    open(node);
  }
  // counts: the first time in this run.
  void end(uint32_t node, bool counts) {
    close(node);
    const uint64_t now = ticks();
    add(counts ? EventKind::kNode : EventKind::kAgain, static_cast<int32_t>(node), last_, now);
    last_ = now;
  }
  void copies_end() {
    const uint64_t now = ticks();
    add(EventKind::kCopies, -1, last_, now);
    last_ = now;
  }
  // Lanes write down their nodes themselves.
  void lanes_begin() { node_ = -1; }
  void lanes_end() { last_ = ticks(); }
  // A node that may run others inside: not chained.
  uint64_t open_at(uint32_t node) {
    begin(node);
    return ticks();
  }
  void close_at(uint32_t node, uint64_t begin) {
    close(node);
    last_ = ticks();
    add(EventKind::kNode, static_cast<int32_t>(node), begin, last_);
  }

 private:
  void add(EventKind kind, int32_t node, uint64_t begin, uint64_t end) {
    if (at_ == size_) flush();
    room_[at_++] = {kind, node, thread_, run_, begin, end};
  }
  void open(uint32_t node) const {
    OPFORGE_PROBE(node_begin, recorder_->names_[node].c_str(), static_cast<int32_t>(node));
    if (recorder_->ranges_ != nullptr) recorder_->ranges_->push(recorder_->handles_[node]);
  }
  void close(uint32_t node) const {
    if (recorder_->ranges_ != nullptr) recorder_->ranges_->pop();
    OPFORGE_PROBE(node_end, recorder_->names_[node].c_str(), static_cast<int32_t>(node));
  }
  void flush();
  static void helped(HelpWatch* self, uint64_t begin, uint64_t end);

  Recorder* recorder_;
  Event* room_;
  size_t size_, at_ = 0;
  int32_t run_, thread_, node_ = -1;
  bool whole_;  // the run itself, not one of its lanes
  HelpWatch* before_ = nullptr;
  uint64_t first_, last_;
};

}  // namespace opforge::session
