// Workers and completions.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "csrc/sim/stream.h"

namespace foundry::sim {

namespace {

struct Operation {
  std::vector<CompletionRef> waits;
  std::function<void()> body;
  CompletionRef done;
};

// One lock and one condition for all queues: few streams, and no order of locks to get wrong.
struct Engine {
  std::mutex mutex;
  std::condition_variable changed;
};

Engine& engine() {
  static auto* instance = new Engine;
  return *instance;
}

}  // namespace

class Worker : public std::enable_shared_from_this<Worker> {
 public:
  void push(Operation operation) {
    std::lock_guard lock(engine().mutex);
    queue_.push_back(std::move(operation));
    if (!running_) {
      running_ = true;
      std::thread([self = shared_from_this()] { self->loop(); }).detach();
    }
    engine().changed.notify_all();
  }

  // The thread ends once the queue is empty.
  void retire() {
    std::lock_guard lock(engine().mutex);
    retired_ = true;
    engine().changed.notify_all();
  }

 private:
  void loop() {
    std::unique_lock lock(engine().mutex);
    for (;;) {
      engine().changed.wait(lock, [&] { return retired_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Operation operation = std::move(queue_.front());
      queue_.pop_front();
      for (const CompletionRef& wait : operation.waits) {
        engine().changed.wait(lock, [&] { return wait->done; });
      }
      lock.unlock();
      if (operation.body) operation.body();
      operation.body = nullptr;
      lock.lock();
      operation.done->done = true;
      operation.done->when = std::chrono::steady_clock::now();
      engine().changed.notify_all();
    }
  }

  std::deque<Operation> queue_;
  bool running_ = false, retired_ = false;
};

namespace {

std::shared_ptr<Stream> new_stream(Context& context, unsigned flags, int priority) {
  static unsigned long long last_id = 0;
  auto stream = std::make_shared<Stream>();
  stream->context = &context;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = ++last_id;
  // The worker outlives the stream object where work is still queued.
  stream->worker = std::shared_ptr<Worker>(new Worker);
  return stream;
}

bool all_done(const std::vector<CompletionRef>& list) {
  for (const CompletionRef& one : list) {
    if (!one->done) return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<Stream> make_stream(Context& context, unsigned flags, int priority) {
  auto stream = new_stream(context, flags, priority);
  stream->handle = streams().add(stream);
  return stream;
}

void retire_stream(Stream& stream) { stream.worker->retire(); }

std::shared_ptr<Stream> make_default_stream(Context& context, bool per_thread) {
  auto stream = new_stream(context, CU_STREAM_DEFAULT, kLeastPriority);
  stream->legacy = !per_thread;
  stream->handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  return stream;
}

CompletionRef enqueue(Stream& stream, std::function<void()> body, std::vector<CompletionRef> waits) {
  // The legacy stream waits for every blocking stream of its context, and they wait for it.
  auto depend = [&](const CompletionRef& on) {
    if (on != nullptr && !is_done(on)) waits.push_back(on);
  };
  Context& context = *stream.context;
  if (stream.legacy) {
    for (const auto& [value, other] : streams().all()) {
      if (other->context == &context && other->blocking()) depend(other->tail);
    }
    for (const auto& [thread, other] : context.per_thread) depend(other->tail);
  } else if (stream.blocking() && context.legacy != nullptr) {
    depend(context.legacy->tail);
  }
  auto done = std::make_shared<Completion>();
  stream.worker->push(Operation{std::move(waits), std::move(body), done});
  stream.tail = done;
  return done;
}

bool is_done(const CompletionRef& completion) {
  if (completion == nullptr) return true;
  std::lock_guard lock(engine().mutex);
  return completion->done;
}

void finish(const CompletionRef& completion) {
  std::lock_guard lock(engine().mutex);
  completion->done = true;
  completion->when = std::chrono::steady_clock::now();
  engine().changed.notify_all();
}

void wait_for(const CompletionRef& completion) {
  if (completion == nullptr) return;
  Unlocked unlocked;
  std::unique_lock lock(engine().mutex);
  engine().changed.wait(lock, [&] { return completion->done; });
}

void synchronize_context(Context& context) {
  std::vector<CompletionRef> tails;
  auto collect = [&](const std::shared_ptr<Stream>& stream) {
    if (stream != nullptr && stream->tail != nullptr) tails.push_back(stream->tail);
  };
  collect(context.legacy);
  for (const auto& [thread, stream] : context.per_thread) collect(stream);
  for (const auto& [value, stream] : streams().all()) {
    if (stream->context == &context) collect(stream);
  }
  Unlocked unlocked;
  std::unique_lock lock(engine().mutex);
  engine().changed.wait(lock, [&] { return all_done(tails); });
}

void break_context(Context& context, CUresult code, const char* text) {
  fail(code, "%s", text);
  CUresult none = CUDA_SUCCESS;
  context.sticky.compare_exchange_strong(none, code);
}

}  // namespace foundry::sim
