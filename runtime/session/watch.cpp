// watch.cpp: hands what watched runs wrote down to the session, once per run and not once per node.
#include "session/watch.h"

#include "session/model.h"

#if defined(OPFORGE_HAVE_PROBES)
extern "C" {
// In a section of its own, which tools expect.
volatile uint16_t opforge_probe_semaphore __attribute__((section(".probes"), visibility("hidden"))) = 0;
}
#endif

namespace opforge::session {
namespace {

// Small numbers, in the order in which threads first take part.
int32_t thread_number() {
  static std::atomic<int32_t> threads{0};
  thread_local const int32_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

void Recorder::open(const Model& model) {
  model_ = &model;
  sums_.resize(model.program().counts.nodes);
  if (const Ranges& ranges = attached_ranges(); ranges.push != nullptr) {
    ranges_ = &ranges;
    watching_.store(true);
  }
}

void Recorder::start(size_t most, uint32_t every) {
  std::lock_guard<std::mutex> lock(mutex_);
  sums_.assign(sums_.size(), {});
  events_.clear();
  events_.shrink_to_fit();
  events_.reserve(most);
  most_ = most;
  lost_ = 0;
  runs_.store(0);
  begun_.store(0);
  every_.store(ranges_ != nullptr ? 1 : every);
  scale_.start();
  recording_.store(true);
  watching_.store(true);
}

void Recorder::stop() {
  recording_.store(false);
  watching_.store(ranges_ != nullptr);
}

void Recorder::sum(uint32_t node, int64_t* runs, int64_t* nanoseconds) {
  std::lock_guard<std::mutex> lock(mutex_);
  *runs = sums_[node].runs;
  if (sums_[node].ticks != 0) scale_.measure();
  *nanoseconds = scale_.span(sums_[node].ticks);
}

void Recorder::name_nodes() {
  std::call_once(named_, [&] {
    const Program& program = model_->program();
    for (uint32_t n = 0; n < program.counts.nodes; ++n) {
      const NodeInfo& info = model_->node(n);
      std::string name = model_->text(info.record->domain);
      name += (name.empty() ? "" : "::") + model_->text(info.record->op);
      if (info.record->outputs > 0 && info.outputs[0] >= 0)
        name += " " + model_->text(program.values[info.outputs[0]].name);
      names_.push_back(std::move(name));
      if (ranges_ != nullptr) handles_.push_back(ranges_->handle(names_.back().c_str()));
    }
  });
}

Watch::Watch(Recorder* recorder, Event* room, size_t size)
    : HelpWatch{helped},
      recorder_(recorder),
      room_(room),
      size_(size),
      run_(recorder->runs_.fetch_add(1, std::memory_order_relaxed)),
      thread_(thread_number()),
      whole_(true) {
  recorder_->name_nodes();
  before_ = watch_helpers(this);
  first_ = last_ = ticks();
}

Watch::Watch(const Watch& run, Event* room, size_t size)
    : HelpWatch{helped},
      recorder_(run.recorder_),
      room_(room),
      size_(size),
      run_(run.run_),
      thread_(thread_number()),
      whole_(false),
      first_(0),
      last_(ticks()) {}

Watch::~Watch() {
  if (whole_) {
    watch_helpers(before_);
    add(EventKind::kRun, -1, first_, last_);
  }
  flush();
}

void Watch::helped(HelpWatch* self, uint64_t begin, uint64_t end) {
  auto* watch = static_cast<Watch*>(self);
  if (!watch->recorder_->recording_.load(std::memory_order_relaxed)) return;
  std::lock_guard<std::mutex> lock(watch->recorder_->mutex_);
  if (watch->recorder_->events_.size() < watch->recorder_->most_) {
    watch->recorder_->events_.push_back(
        {EventKind::kHelp, watch->node_, thread_number(), watch->run_, begin, end});
  } else {
    ++watch->recorder_->lost_;
  }
}

void Watch::flush() {
  const size_t count = at_;
  at_ = 0;
  if (!recorder_->recording_.load(std::memory_order_relaxed)) return;
  std::lock_guard<std::mutex> lock(recorder_->mutex_);
  for (size_t k = 0; k < count; ++k) {
    const Event& event = room_[k];
    if (event.node >= 0) {
      Recorder::Sum& sum = recorder_->sums_[static_cast<size_t>(event.node)];
      sum.runs += event.kind == EventKind::kNode ? 1 : 0;
      sum.ticks += event.end - event.begin;
    }
    if (recorder_->events_.size() < recorder_->most_)
      recorder_->events_.push_back(event);
    else
      ++recorder_->lost_;
  }
}

}  // namespace opforge::session
